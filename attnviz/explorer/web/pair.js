// Two images: a patch of one, and the cosines of all patches of the other to it.

const COUNTS = facts.grids.map(([rows, columns]) => rows * columns);
const TOKENS = COUNTS[0] + COUNTS[1]; // the patches of both images, those of the first before
const SCALES = ["panel", "unit"];
const GAP = 12;
const LEGEND = 64; // what stands below the panels

const container = by("panels");
const state = startState();
const timing = { draws: 0, milliseconds: 0 };
const layers = new Map(); // promises of what has been unpacked
const highest = [];
let data = null; // the layer that is shown
let pointer = null; // {image, cell} under the pointer
let scheduled = false;
let unannounced = false;
let linking = 0;
let pressed = null;

function startState() {
  const [rows, columns] = facts.grids[0];
  return {
    layer: facts.start,
    image: 0,
    cell: Math.floor(rows / 2) * columns + Math.floor(columns / 2),
    held: false,
    scale: "panel",
    cmap: Object.keys(facts.cmaps)[0],
    opacity: Math.round(100 * facts.overlay.alpha),
  };
}

// Unit vectors of one layer, (ranks, tokens) in one array of floats.
async function readLayer(layer) {
  const index = facts.layers.indexOf(layer);
  const bytes = await inflate(`layer-${layer}`);
  const count = facts.ranks[index] * TOKENS;
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    // All low bytes come before all high bytes; 0, 1, 2, 3 stand for 0, -1, 1, -2.
    const folded = bytes[i] | (bytes[count + i] << 8);
    values[i] = facts.steps[index] * ((folded >>> 1) ^ -(folded & 1));
  }
  return { layer, ranks: facts.ranks[index], values };
}

function layerOf(layer) {
  if (!layers.has(layer)) layers.set(layer, readLayer(layer));
  return layers.get(layer);
}

// The cosines of all patches of the other image to one: (patches).
function cosinesTo({ ranks, values }, image, cell) {
  const other = 1 - image, count = COUNTS[other];
  const token = image * COUNTS[0] + cell, first = other * COUNTS[0];
  const row = new Float32Array(count);
  for (let rank = 0; rank < ranks; rank++) {
    const weight = values[rank * TOKENS + token], start = rank * TOKENS + first;
    if (weight === 0) continue;
    for (let j = 0; j < count; j++) row[j] += weight * values[start + j];
  }
  return row;
}

function indexOfHighest(row) {
  let best = 0;
  for (let j = 1; j < row.length; j++) if (row[j] > row[best]) best = j;
  return best;
}

// The patch that is shown now: that under the pointer, unless one is held.
function current() {
  return pointer && !state.held ? pointer : { image: state.image, cell: state.cell };
}

function cellName(image, cell) {
  const columns = facts.grids[image][1];
  return `(${Math.floor(cell / columns)}, ${cell % columns})`;
}

function makePanel(image) {
  const [rows, columns] = facts.grids[image];
  const { width, height, address } = facts.pictures[image];
  const figure = element("figure", "panel", container);
  const frame = element("div", "frame", figure);
  const picture = element("img", "", frame);
  Object.assign(picture, { src: address, alt: "", draggable: false });
  const canvas = element("canvas", "", frame);
  Object.assign(canvas, { width: columns, height: rows });
  frame.dataset.panel = image;
  frame.setAttribute("role", "img");
  frame.style.aspectRatio = `${width} / ${height}`;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const name = element("span", "name", element("figcaption", "", figure));
  name.textContent = facts.names[image];
  const marker = element("span", "marker query", frame);
  return { frame, context, pixels, words: new Uint32Array(pixels.data.buffer), marker };
}

const panels = [makePanel(0), makePanel(1)];

// Both images at one height, side by side, or one below the other where that makes them larger.
function arrange() {
  const aspects = facts.pictures.map(({ width, height }) => width / height);
  const wide = container.clientWidth, stage = container.parentElement;
  const above = container.getBoundingClientRect().top - stage.getBoundingClientRect().top + stage.scrollTop;
  const isSmall = window.innerWidth <= 760;
  const high = isSmall ? 0.8 * window.innerHeight : Math.max(240, stage.clientHeight - above - LEGEND);
  const caption = 40;
  const beside = Math.min((wide - GAP) / (aspects[0] + aspects[1]), high - caption);
  const below = Math.min(wide / Math.max(...aspects), (high - GAP) / 2 - caption);
  const widths = aspects.map((aspect) => `${Math.max(1, Math.floor(aspect * Math.max(beside, below)))}px`);
  container.style.gridTemplateColumns = beside >= below ? widths.join(" ") : "max-content";
  panels.forEach(({ frame }, i) => { frame.style.width = widths[i]; });
}

function mark({ marker }, image, cell) {
  const [rows, columns] = facts.grids[image];
  marker.style.left = `${(100 * (cell % columns)) / columns}%`;
  marker.style.top = `${(100 * Math.floor(cell / columns)) / rows}%`;
  marker.style.width = `${100 / columns}%`;
  marker.style.height = `${100 / rows}%`;
}

function paint({ words, context, pixels }, row, [low, high]) {
  const colours = overlayWords(state.cmap, state.opacity);
  const scale = 256 / (high - low);
  for (let i = 0; i < words.length; i++) {
    const level = row ? Math.floor((row[i] - low) * scale) : 0;
    words[i] = row ? colours[level < 0 ? 0 : level > 255 ? 255 : level] : 0;
  }
  context.putImageData(pixels, 0, 0);
}

function limitsOf(row) {
  if (state.scale === "unit") return [0, 1];
  let low = Infinity, high = -Infinity;
  for (const value of row) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return high - low > 1e-6 ? [low, high] : [Math.min(0, low), Math.max(1, high)];
}

function draw() {
  scheduled = false;
  if (!data || data.layer !== state.layer) return;
  const start = performance.now();
  const { image, cell } = current(), other = 1 - image;
  const row = cosinesTo(data, image, cell);
  const best = indexOfHighest(row), limits = limitsOf(row);
  const isMutual = indexOfHighest(cosinesTo(data, other, best)) === cell;
  paint(panels[image], null, limits);
  paint(panels[other], row, limits);
  mark(panels[image], image, cell);
  mark(panels[other], other, best);
  write(by("low"), limits[0].toFixed(2));
  write(by("high"), limits[1].toFixed(2));
  write(by("headline"), `${facts.names[image]} ${cellName(image, cell)} → ${facts.names[other]} ` +
    `${cellName(other, best)} · cosine ${row[best].toFixed(3)} · ` +
    `${isMutual ? "mutual nearest" : "not mutual"} · layer ${state.layer}`);
  panels.forEach(({ frame }, i) => frame.setAttribute(
    "aria-label", i === image ? `patch ${cellName(i, cell)}` : by("headline").textContent));
  write(by("numbers-of"), `of ${facts.names[other]}`);
  const order = Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b);
  highest.forEach((entry, i) => {
    entry.button.hidden = i >= order.length;
    if (i >= order.length) return;
    Object.assign(entry, { image: other, cell: order[i] });
    write(entry.name, cellName(other, order[i]));
    write(entry.value, row[order[i]].toFixed(3));
  });
  if (unannounced) {
    unannounced = false;
    write(by("spoken"), `${by("headline").textContent}.`);
  }
  timing.draws += 1;
  timing.milliseconds = performance.now() - start;
}

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

// Tell a screen reader what is shown, once it is drawn.
function announce() {
  unannounced = true;
  schedule();
}

async function changed() {
  slide("layer", facts.layers.indexOf(state.layer), String(state.layer));
  slide("opacity", state.opacity, `${state.opacity} %`);
  select("scales", state.scale);
  by("cmap").value = state.cmap;
  by("lock").setAttribute("aria-pressed", String(state.held));
  write(by("hint"), state.held
    ? "The patch is held. Click it again, or press Esc, to follow the pointer."
    : "The patch follows the pointer. Click or tap a patch to hold it.");
  paintBar();
  clearTimeout(linking);
  linking = setTimeout(() => history.replaceState(null, "", `#${stateToText()}`), 150);
  const { layer } = state;
  try {
    const read = await layerOf(layer);
    if (state.layer !== layer) return; // a later choice has come first
    data = read;
    notice("");
  } catch {
    if (state.layer !== layer) return;
    notice(`Layer ${layer} cannot be read: its data in this file is damaged. Is the file complete?`);
    write(by("headline"), `Layer ${layer} cannot be read`);
  }
  schedule();
}
