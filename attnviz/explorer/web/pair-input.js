// The state of a pair's page in its link, from pointer and keys to state, and the start of the page.

function stateToText() {
  const columns = facts.grids[state.image][1];
  const parts = new URLSearchParams();
  parts.set("layer", state.layer);
  parts.set("image", state.image);
  parts.set("patch", `${Math.floor(state.cell / columns)}.${state.cell % columns}`);
  if (state.held) parts.set("hold", "1");
  parts.set("scale", state.scale);
  parts.set("colours", state.cmap);
  parts.set("opacity", state.opacity);
  return parts.toString();
}

// Take what the fragment says and this page has; the rest is as at the start.
function stateFromText(text) {
  const parts = new URLSearchParams(text.replace(/^#/, ""));
  const given = (name) => parts.get(name) ?? "";
  const integer = (name, high) => (/^\d{1,4}$/.test(given(name)) && Number(given(name)) <= high
    ? Number(given(name)) : null);
  Object.assign(state, startState());
  if (facts.layers.includes(integer("layer", 9999))) state.layer = integer("layer", 9999);
  const image = integer("image", 1) ?? 0;
  const match = /^(\d{1,4})\.(\d{1,4})$/.exec(given("patch"));
  const [rows, columns] = facts.grids[image];
  if (match && Number(match[1]) < rows && Number(match[2]) < columns) {
    Object.assign(state, { image, cell: Number(match[1]) * columns + Number(match[2]) });
  }
  state.held = given("hold") === "1";
  if (SCALES.includes(given("scale"))) state.scale = given("scale");
  if (Object.hasOwn(facts.cmaps, given("colours"))) state.cmap = given("colours");
  state.opacity = integer("opacity", 100) ?? state.opacity;
}

function set(name, value) {
  state[name] = value;
  changed();
}

function hold({ image, cell }) {
  Object.assign(state, { image, cell, held: true });
  changed();
  announce();
}

// The same by a click: a held patch that is clicked again is released.
function choose(patch) {
  if (state.held && state.image === patch.image && state.cell === patch.cell) set("held", false);
  else hold(patch);
}

// To the nearest patch of the other image.
function cross() {
  if (!data) return;
  const { image, cell } = current();
  hold({ image: 1 - image, cell: indexOfHighest(cosinesTo(data, image, cell)) });
}

function stepLayer(step) {
  const layer = facts.layers[facts.layers.indexOf(state.layer) + step];
  if (layer !== undefined) set("layer", layer);
}

function stepPatch(down, right) {
  const { image, cell } = current();
  const [rows, columns] = facts.grids[image];
  const row = Math.floor(cell / columns) + down, column = (cell % columns) + right;
  if (row >= 0 && row < rows && column >= 0 && column < columns) hold({ image, cell: row * columns + column });
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const KEYS = {
  o: cross,
  "[": () => stepLayer(-1),
  "]": () => stepLayer(1),
  escape: () => set("held", false),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
  const arrow = ARROWS[event.key], action = KEYS[event.key.toLowerCase()];
  const isMove = arrow && (event.target === container || (event.shiftKey && !event.target.closest("input")));
  if (isMove) stepPatch(...arrow);
  else if (action) action();
  else return;
  event.preventDefault();
  announce();
}

// The patch at a pointer event, or null beside the images.
function patchAt(event) {
  const frame = event.target.closest(".frame");
  if (!frame) return null;
  const image = Number(frame.dataset.panel), [rows, columns] = facts.grids[image];
  const box = frame.getBoundingClientRect();
  const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
  const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
  const isInside = row >= 0 && row < rows && column >= 0 && column < columns;
  return isInside ? { image, cell: row * columns + column } : null;
}

function movePointer(patch) {
  if (patch?.image === pointer?.image && patch?.cell === pointer?.cell) return;
  // On the way to the controls the last patch stays.
  if (!patch && pointer && !state.held) Object.assign(state, pointer);
  pointer = patch;
  schedule();
}

function listen() {
  container.addEventListener("pointermove", (event) => movePointer(patchAt(event)));
  container.addEventListener("pointerdown", (event) => {
    movePointer(patchAt(event));
    pressed = pointer;
  });
  container.addEventListener("pointerleave", () => movePointer(null));
  container.addEventListener("mousedown", (event) => event.preventDefault());
  container.addEventListener("click", () => pressed && choose(pressed));
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", arrange);
  window.addEventListener("hashchange", () => { stateFromText(location.hash); changed(); });
}

function buildControls() {
  by("name").textContent = facts.names.join(" · ");
  const grids = facts.grids.map(([rows, columns]) => `${rows} × ${columns}`).join(" and ");
  by("model").textContent =
    `${facts.model}${facts.random ? " (random weights)" : ""} · ${facts.depth} layers · ${grids} patches`;
  segments(
    "scales",
    [["panel", "Min–max", "from the lowest to the highest cosine of the patch"],
      ["unit", "0 to 1", "from cosine 0 to 1; below 0 as 0"]],
    (scale) => set("scale", scale),
  );
  by("layer").max = facts.layers.length - 1;
  by("layer").disabled = facts.layers.length === 1;
  by("layer").addEventListener("input", () => set("layer", facts.layers[by("layer").value]));
  by("layer").addEventListener("change", announce);
  by("opacity").addEventListener("input", () => set("opacity", Number(by("opacity").value)));
  for (const name of Object.keys(facts.cmaps)) element("option", "", by("cmap")).textContent = name;
  by("cmap").addEventListener("change", () => set("cmap", by("cmap").value));
  by("lock").addEventListener("click", () => set("held", !state.held));
  by("other").addEventListener("click", cross);
  by("link").addEventListener("click", copyLink);
  by("reset").addEventListener("click", () => { Object.assign(state, startState()); changed(); });
  for (let i = 0; i < 5; i++) {
    const button = element("button", "cell", element("li", "", by("highest")));
    button.type = "button";
    button.title = "look from this patch";
    const entry = { button, name: element("span", "", button), value: element("span", "", button) };
    button.addEventListener("click", () => hold(entry));
    highest.push(entry);
  }
  const options = Object.entries(record.options).map(([name, value]) => `${name} ${value}`);
  const rows = [
    ["Model", record.model],
    ["Weights SHA-256", record.weights_sha256 ?? "none"],
    ["SHA-256 of the images", `${record.image_sha256}, ${record.like_sha256}`],
    ["Options", options.join(", ")],
    ["Versions", Object.entries(record.versions).map((pair) => pair.join(" ")).join(", ")],
  ];
  for (const [name, value] of rows) {
    element("dt", "", by("made")).textContent = name;
    element("dd", "", by("made")).textContent = value;
  }
}

// For the browser's console and for tests: numbers as they are shown.
window.attnviz = {
  facts,
  state,
  timing,
  cosines: async (layer, image, cell) => Array.from(cosinesTo(await layerOf(layer), image, cell)),
};

if ("DecompressionStream" in window) {
  document.querySelector("main").hidden = false;
  document.querySelector(".actions").hidden = false;
  buildControls();
  arrange();
  stateFromText(location.hash);
  listen();
  changed();
} else {
  notice("This browser is too old for this page: it cannot unpack its data (DecompressionStream).");
}
