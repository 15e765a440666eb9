// Panels: the image under one map each, made once and painted again and again.

const container = document.getElementById("panels");
const pool = [];
let layout = { columns: 1, groupSize: 1 };

const GAP = 12;
const CAPTION = 40;
const SMALLEST = 150;
const LEGEND = 64; // what stands below the panels
const DIMMED = [18, 18, 20, 168];

function makePanel(index) {
  const figure = element("figure", "panel");
  const frame = element("div", "frame", figure);
  const image = element("img", "", frame);
  image.src = facts.picture.address;
  image.alt = "";
  image.draggable = false;
  const canvas = element("canvas", "", frame);
  canvas.width = COLUMNS;
  canvas.height = ROWS;
  frame.dataset.panel = index;
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

// Show the first ``count`` panels; every group of ``groupSize`` begins a row.
function showPanels(count, groupSize) {
  while (pool.length < count) {
    const panel = makePanel(pool.length);
    pool.push(panel);
    container.append(panel.figure);
  }
  pool.forEach(({ figure }, i) => {
    figure.hidden = i >= count;
    figure.style.gridColumnStart = i % groupSize ? "" : "1";
  });
  container.classList.toggle("alone", count === 1); // its caption would repeat the headline
  layout.groupSize = groupSize;
  arrange();
}

function visiblePanels() {
  return pool.filter((panel) => !panel.figure.hidden);
}

// The number of columns that makes the panels largest within the window.
function arrange() {
  const { groupSize } = layout;
  const count = visiblePanels().length;
  const wide = container.clientWidth;
  const aspect = facts.picture.width / facts.picture.height;
  let best = { columns: 1, width: 0 };
  for (let columns = 1; columns <= groupSize; columns++) {
    const rows = Math.ceil(groupSize / columns) * (count / groupSize);
    const across = (wide - GAP * (columns - 1)) / columns;
    const down = ((heightFor(count) - GAP * (rows - 1)) / rows - (count > 1 ? CAPTION : 0)) * aspect;
    const width = Math.min(across, down);
    if (width > best.width) best = { columns, width };
  }
  const smallest = SMALLEST * Math.min(1, Math.sqrt(aspect));
  if (count > 1 && best.width < smallest) {
    // More panels than the window holds: as many columns as stay readable, and scroll.
    best.columns = Math.max(1, Math.min(groupSize, Math.floor((wide + GAP) / (smallest + GAP))));
    best.width = Math.min((wide - GAP * (best.columns - 1)) / best.columns, 1.5 * smallest);
  }
  layout.columns = best.columns;
  container.style.gridTemplateColumns = `repeat(${best.columns}, ${Math.max(1, Math.floor(best.width))}px)`;
}

// Row and column of a panel.
function positionOf(index) {
  const { columns, groupSize } = layout;
  const group = Math.floor(index / groupSize), i = index % groupSize;
  return [group * Math.ceil(groupSize / columns) + Math.floor(i / columns), i % columns];
}

// Height in pixels for all panels. On a phone, a single image leaves room for the controls below it.
function heightFor(count) {
  if (window.innerWidth <= 760) return (count > 1 ? 0.72 : 0.42) * window.innerHeight;
  const stage = container.parentElement;
  const above = container.getBoundingClientRect().top - stage.getBoundingClientRect().top + stage.scrollTop;
  return Math.max(240, stage.clientHeight - above - LEGEND);
}

const DIMMED_WORD = word(...DIMMED);
function paint(panel, row, [low, high], mask) {
  const words = panel.words;
  const colours = overlayWords(state.cmap, state.opacity);
  const scale = 256 / (high - low);
  for (let i = 0; i < CELLS; i++) {
    const level = Math.floor((row[PREFIX + i] - low) * scale);
    words[i] = mask && !mask[i] ? DIMMED_WORD : colours[level < 0 ? 0 : level > 255 ? 255 : level];
  }
  panel.context.putImageData(panel.pixels, 0, 0);
}

// Outline cells: [token, text, class] each; prefix tokens have no position in the image.
function mark(panel, marks) {
  const cells = marks.filter(([token]) => token >= PREFIX);
  while (panel.markers.length < cells.length) panel.markers.push(element("span", "", panel.frame));
  panel.markers.forEach((marker, i) => {
    marker.hidden = i >= cells.length;
    if (marker.hidden) return;
    const [token, text, className] = cells[i];
    const [row, column] = cellOfToken(token);
    marker.className = `marker ${className}`;
    marker.style.left = `${(100 * column) / COLUMNS}%`;
    marker.style.top = `${(100 * row) / ROWS}%`;
    marker.style.width = `${100 / COLUMNS}%`;
    marker.style.height = `${100 / ROWS}%`;
    if (marker.textContent !== text) marker.textContent = text;
  });
}

// The patch and panel at a pointer event; token is -1 beside all panels.
function patchAt(event) {
  const none = { token: -1, panel: 0 };
  const frame = event.target.closest(".frame");
  if (!frame) return none;
  const box = frame.getBoundingClientRect();
  const row = Math.floor(((event.clientY - box.top) / box.height) * ROWS);
  const column = Math.floor(((event.clientX - box.left) / box.width) * COLUMNS);
  if (row < 0 || row >= ROWS || column < 0 || column >= COLUMNS) return none;
  return { token: tokenOfCell(row, column), panel: Number(frame.dataset.panel) };
}
