// Attention of one query token, and the statistics of a row. Definitions as in the command line.

// softmax(q k^T + bias) of one token in every head: (heads, tokens) in one array.
function attentionOf(data, token) {
  const { ranks, query, key, bias } = data;
  const rows = new Float32Array(HEADS * TOKENS);
  for (let head = 0; head < HEADS; head++) {
    const row = rows.subarray(head * TOKENS, (head + 1) * TOKENS);
    for (let rank = 0; rank < ranks; rank++) {
      const start = (rank * HEADS + head) * TOKENS;
      const weight = query[start + token];
      if (weight === 0) continue;
      for (let j = 0; j < TOKENS; j++) row[j] += weight * key[start + j];
    }
    if (bias) addBias(row, bias, head, token);
    softmax(row);
  }
  return rows;
}

function addBias(row, bias, head, token) {
  const cell = cellOfToken(token);
  if (!cell) {
    const start = (head * PREFIX + token) * TOKENS;
    for (let j = 0; j < TOKENS; j++) row[j] += bias.rows[start + j];
    return;
  }
  const start = (head * CELLS + token - PREFIX) * PREFIX;
  for (let j = 0; j < PREFIX; j++) row[j] += bias.columns[start + j];
  const down = 2 * ROWS - 1, across = 2 * COLUMNS - 1;
  for (let r = 0, j = PREFIX; r < ROWS; r++) {
    const line = (head * down + cell[0] - r + ROWS - 1) * across + cell[1] + COLUMNS - 1;
    for (let c = 0; c < COLUMNS; c++, j++) row[j] += bias.offsets[line - c];
  }
}

function softmax(row) {
  let highest = -Infinity;
  for (let j = 0; j < TOKENS; j++) if (row[j] > highest) highest = row[j];
  let sum = 0;
  for (let j = 0; j < TOKENS; j++) {
    const power = Math.exp(row[j] - highest);
    row[j] = power;
    sum += power;
  }
  const share = 1 / sum;
  for (let j = 0; j < TOKENS; j++) row[j] *= share;
}

// One row (tokens) of all heads: a single head's, or the mean or maximum over heads.
function fuseHeads(rows, head) {
  if (typeof head === "number") return rows.subarray(head * TOKENS, (head + 1) * TOKENS);
  const out = rows.slice(0, TOKENS);
  for (let h = 1; h < HEADS; h++) {
    const row = rows.subarray(h * TOKENS, (h + 1) * TOKENS);
    if (head === "mean") for (let j = 0; j < TOKENS; j++) out[j] += row[j];
    else for (let j = 0; j < TOKENS; j++) if (row[j] > out[j]) out[j] = row[j];
  }
  if (head === "mean") for (let j = 0; j < TOKENS; j++) out[j] /= HEADS;
  return out;
}

// Entropy in nats over all tokens; 0 ln 0 is 0.
function entropyOf(row) {
  let sum = 0;
  for (let j = 0; j < TOKENS; j++) if (row[j] > 0) sum -= row[j] * Math.log(row[j]);
  return sum;
}

// Lowest, highest and sum over the patches.
function rangeOf(row) {
  let low = Infinity, high = -Infinity, sum = 0;
  for (let j = PREFIX; j < TOKENS; j++) {
    const value = row[j];
    if (value < low) low = value;
    if (value > high) high = value;
    sum += value;
  }
  return { low, high, sum };
}

// The fewest highest cells whose share of the patches' mass reaches ``share``; of equal cells the
// first in reading order. kept: 1 or 0 per cell; count; mass: the share that they hold.
function massMask(row, share) {
  const cells = row.slice(PREFIX).sort();
  let total = 0;
  for (let i = 0; i < CELLS; i++) total += cells[i];
  let count = 0, mass = 0;
  while (count < CELLS && mass < (share - 1e-7) * total) mass += cells[CELLS - 1 - count++];
  const kept = new Uint8Array(CELLS);
  if (total > 0) {
    const least = cells[CELLS - count];
    let equal = 0;
    for (let i = CELLS - count; i < CELLS && cells[i] === least; i++) equal++;
    for (let i = 0; i < CELLS; i++) {
      const value = row[PREFIX + i];
      if (value > least || (value === least && equal-- > 0)) kept[i] = 1;
    }
  }
  return { kept, count: total > 0 ? count : 0, mass: total > 0 ? mass / total : 0 };
}

// The highest patches, highest first: [token, value] each.
function highestPatches(row, count) {
  const result = [];
  for (let token = PREFIX; token < TOKENS; token++) {
    const value = row[token];
    if (result.length === count && value <= result[count - 1][1]) continue;
    let i = result.length;
    while (i > 0 && value > result[i - 1][1]) i--;
    result.splice(i, 0, [token, value]);
    if (result.length > count) result.pop();
  }
  return result;
}
