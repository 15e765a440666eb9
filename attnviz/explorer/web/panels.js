// Panels: the picture with one map over it each, made once and painted again and again.

const container = document.getElementById("panels");
const pool = [];

const GAP = 12;
const CAPTION = 40;
const SMALLEST = 150;
const LEGEND = 60; // what stands below the panels
const VEIL = [18, 18, 20, 168];

function element(kind, className, parent) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
}

function makePanel(number) {
  const figure = element("figure", "panel");
  const frame = element("div", "frame", figure);
  const image = element("img", "", frame);
  image.src = facts.picture.address;
  image.alt = "";
  image.draggable = false;
  const canvas = element("canvas", "", frame);
  canvas.width = COLUMNS;
  canvas.height = ROWS;
  frame.dataset.panel = number;
  frame.setAttribute("role", "img");
  frame.style.aspectRatio = `${facts.picture.width} / ${facts.picture.height}`;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(COLUMNS, ROWS);
  const caption = element("figcaption", "", figure);
  return {
    figure, frame, image, canvas, context, pixels,
    words: new Uint32Array(pixels.data.buffer),
    name: element("span", "name", caption),
    summary: element("span", "", caption),
    markers: [],
  };
}

// Show the first ``count`` panels.
function showPanels(count) {
  while (pool.length < count) {
    const made = makePanel(pool.length);
    pool.push(made);
    container.append(made.figure);
  }
  pool.forEach((panel, number) => { panel.figure.hidden = number >= count; });
  container.classList.toggle("alone", count === 1); // its caption would repeat the headline
  arrange(count);
}

function panelsInView() {
  return pool.filter((panel) => !panel.figure.hidden);
}

// The number of columns that makes the panels largest within the window.
function arrange(count) {
  const wide = container.clientWidth;
  const aspect = facts.picture.width / facts.picture.height;
  let best = { columns: 1, width: 0 };
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const across = (wide - GAP * (columns - 1)) / columns;
    const down = ((heightFor(count) - GAP * (rows - 1)) / rows - (count > 1 ? CAPTION : 0)) * aspect;
    const width = Math.min(across, down);
    if (width > best.width) best = { columns, width };
  }
  const smallest = SMALLEST * Math.min(1, Math.sqrt(aspect));
  if (count > 1 && best.width < smallest) {
    // More panels than the window holds: as many columns as stay readable, and scroll.
    best.columns = Math.max(1, Math.min(count, Math.floor((wide + GAP) / (smallest + GAP))));
    best.width = Math.min((wide - GAP * (best.columns - 1)) / best.columns, 1.5 * smallest);
  }
  container.style.gridTemplateColumns = `repeat(${best.columns}, ${Math.max(1, Math.floor(best.width))}px)`;
}

// Pixels that the panels may be high. A phone's single picture leaves room for the controls below it.
function heightFor(count) {
  if (window.innerWidth <= 760) return (count > 1 ? 0.72 : 0.42) * window.innerHeight;
  const stage = container.parentElement;
  const above = container.getBoundingClientRect().top - stage.getBoundingClientRect().top + stage.scrollTop;
  return Math.max(240, stage.clientHeight - above - LEGEND);
}

const LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

function word(red, green, blue, alpha) {
  return LITTLE_ENDIAN
    ? ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0
    : ((red << 24) | (green << 16) | (blue << 8) | alpha) >>> 0;
}

const VEIL_WORD = word(...VEIL);
let ink = { key: "", words: new Uint32Array(256) };

// 256 colours with their opacity: the square root of the level, so that half levels stay visible.
function inkOf(cmap, opacity) {
  const key = `${cmap} ${opacity}`;
  if (ink.key !== key) {
    const table = colourTable(cmap);
    const words = new Uint32Array(256);
    for (let i = 0; i < 256; i++) {
      const alpha = Math.round(Math.sqrt(i / 255) * opacity * 2.55);
      words[i] = word(table[3 * i], table[3 * i + 1], table[3 * i + 2], alpha);
    }
    ink = { key, words };
  }
  return ink.words;
}

// What the two ends of the colours stand for; a flat map is bright all over, zeros are dark.
function limitsOf({ low, high }) {
  if (high - low > 1e-6 * Math.abs(high)) return [low, high];
  return high > 0 ? [0, high] : [0, 1];
}

function paint(panel, row, [low, high], mask) {
  const words = panel.words;
  const colours = inkOf(state.cmap, state.opacity);
  const scale = 256 / (high - low);
  for (let i = 0; i < CELLS; i++) {
    const level = Math.floor((row[PREFIX + i] - low) * scale);
    words[i] = mask && !mask[i] ? VEIL_WORD : colours[level < 0 ? 0 : level > 255 ? 255 : level];
  }
  panel.context.putImageData(panel.pixels, 0, 0);
}

// Outlines of cells: [token, text, class] each; prefix tokens have no place in the picture.
function mark(panel, marks) {
  const shown = marks.filter(([token]) => token >= PREFIX);
  while (panel.markers.length < shown.length) panel.markers.push(element("span", "", panel.frame));
  panel.markers.forEach((marker, number) => {
    marker.hidden = number >= shown.length;
    if (marker.hidden) return;
    const [token, text, className] = shown[number];
    const [row, column] = cellOfToken(token);
    marker.className = `marker ${className}`;
    marker.style.left = `${(100 * column) / COLUMNS}%`;
    marker.style.top = `${(100 * row) / ROWS}%`;
    marker.style.width = `${100 / COLUMNS}%`;
    marker.style.height = `${100 / ROWS}%`;
    if (marker.textContent !== text) marker.textContent = text;
  });
}

// The patch under a pointer event, {token, panel}; token is -1 beside all panels.
function placeOf(event) {
  const nowhere = { token: -1, panel: 0 };
  const frame = event.target.closest(".frame");
  if (!frame) return nowhere;
  const box = frame.getBoundingClientRect();
  const row = Math.floor(((event.clientY - box.top) / box.height) * ROWS);
  const column = Math.floor(((event.clientX - box.left) / box.width) * COLUMNS);
  if (row < 0 || row >= ROWS || column < 0 || column >= COLUMNS) return nowhere;
  return { token: tokenOfCell(row, column), panel: Number(frame.dataset.panel) };
}
