// What the page holds: the queries and keys of each layer, unpacked when first needed.

const [ROWS, COLUMNS] = facts.grid;
const PREFIX = facts.prefix.length;
const CELLS = ROWS * COLUMNS;
const TOKENS = PREFIX + CELLS;
const HEADS = facts.heads;

// Query and key of one layer, each (ranks, heads, tokens) in one array of floats.
async function readLayer(layer) {
  const index = facts.layers.indexOf(layer);
  const step = facts.steps[index];
  const ranks = facts.ranks[index];
  const bytes = await inflate(`layer-${layer}`);
  const count = ranks * HEADS * TOKENS;
  const unpack = (start) => {
    const values = new Float32Array(count);
    for (let i = 0; i < count; i++) {
      // Low bytes of query and key come first, then high bytes; 0, 1, 2, 3 stand for 0, -1, 1, -2.
      const folded = bytes[start + i] | (bytes[2 * count + start + i] << 8);
      values[i] = step * ((folded >>> 1) ^ -(folded & 1));
    }
    return values;
  };
  return { layer, ranks, query: unpack(0), key: unpack(count), bias: await readBias(layer) };
}

// What a layer adds to its logits: (heads, offsets down, offsets across) of two patches,
// (heads, prefix, tokens) of prefix tokens as queries, (heads, cells, prefix) of them as keys.
// Null where it adds nothing.
async function readBias(layer) {
  if (!facts.biases.includes(layer)) return null;
  const values = new Float32Array((await inflate(`bias-${layer}`)).buffer);
  const ofPatches = HEADS * (2 * ROWS - 1) * (2 * COLUMNS - 1);
  const ofPrefix = ofPatches + HEADS * PREFIX * TOKENS;
  return {
    offsets: values.subarray(0, ofPatches),
    rows: values.subarray(ofPatches, ofPrefix),
    columns: values.subarray(ofPrefix),
  };
}

// Rollout rows (depths, tokens), or null on a page without.
async function readRollout() {
  if (!facts.rollout) return null;
  const bytes = await inflate("rollout");
  return new Float32Array(bytes.buffer, 0, facts.rollout.depths.length * TOKENS);
}

const layerPromises = new Map();

// A promise of a layer; each is unpacked once.
function layerOf(layer) {
  if (!layerPromises.has(layer)) layerPromises.set(layer, readLayer(layer));
  return layerPromises.get(layer);
}

function tokenOfCell(row, column) {
  return PREFIX + row * COLUMNS + column;
}

// Row and column of a patch token, or null for a prefix token.
function cellOfToken(token) {
  if (token < PREFIX) return null;
  const index = token - PREFIX;
  return [Math.floor(index / COLUMNS), index % COLUMNS];
}

function tokenName(token) {
  const cell = cellOfToken(token);
  return cell ? `row ${cell[0]}, column ${cell[1]}` : facts.prefix[token];
}

// As in figures: (row, column).
function shortName(token) {
  const cell = cellOfToken(token);
  return cell ? `(${cell[0]}, ${cell[1]})` : facts.prefix[token];
}
