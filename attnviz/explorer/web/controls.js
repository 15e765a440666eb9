// The panel at the side: controls that set the state, and the numbers of what is shown.

const by = (id) => document.getElementById(id);
const grouped = (number) => number.toLocaleString("en");

// Four significant digits; powers of ten only for very small numbers, and none below what the page's
// accuracy bears.
function decimal(value, digits = 4) {
  if (value === 0) return "0";
  if (value < 1e-9) return "<\u00a01e-9";
  return value >= 1e-4 ? value.toPrecision(digits) : value.toExponential(digits - 2);
}

function percent(value) {
  const number = 100 * value;
  if (number > 0 && number < 0.1) return "<\u00a00.1\u00a0%";
  // Near the whole the tenths count again: a uniform row differs from a nearly uniform one there.
  return `${number.toFixed(number >= 9.95 && number < 99.5 ? 0 : 1)}\u00a0%`;
}

// Radio buttons that look like one segmented control; ``choose`` gets the chosen value.
function segments(id, choices, choose) {
  for (const [value, text, title] of choices) {
    const label = element("label", "", by(id));
    const input = element("input", "", label);
    input.type = "radio";
    input.name = id;
    input.value = value;
    if (title) label.title = title;
    element("span", "", label).textContent = text;
    input.addEventListener("change", () => { choose(value); speak(); });
    // After a click, arrow keys are to mean layer and head again, not the next choice.
    input.addEventListener("click", (event) => { if (event.detail) input.blur(); });
  }
}

function select(id, value) {
  for (const input of by(id).querySelectorAll("input")) input.checked = input.value === String(value);
}

function set(name, value) {
  state[name] = value;
  changed();
}

function buildControls() {
  by("name").textContent = facts.name;
  const layers = facts.layers.length === facts.depth ? "" : `, ${facts.layers.length} of them here`;
  by("model").textContent =
    `${facts.model}${facts.random ? " (random weights)" : ""} · ${facts.depth} layers${layers} · ` +
    `${HEADS} heads · ${ROWS} × ${COLUMNS} patches · ${grouped(TOKENS)} tokens`;
  facts.prefix.forEach((name, token) => {
    const button = element("button", "", by("tokens"));
    button.type = "button";
    button.textContent = name;
    button.title = name === "CLS" ? "the class token's attention" : `the attention of token ${name}`;
    button.addEventListener("click", () => hold(token));
  });
  by("tokens").hidden = !PREFIX;
  const views = { one: "One map", heads: "All heads", rollout: "Rollout" };
  segments("views", VIEWS.map((view) => [view, views[view]]), (view) => set("view", view));
  const heads = Array.from({ length: HEADS }, (_, head) => [head, String(head), `head ${head}`]);
  const both = [["mean", "Mean", "mean of all heads"], ["max", "Max", "maximum of all heads"]];
  segments("heads", [...both, ...heads], showHead);
  segments(
    "scales",
    [["panel", "Own scale", "each map from its lowest to its highest value"],
      ["shared", "Shared scale", "from 0 to the highest value of all heads of the queries shown"]],
    (scale) => set("scale", scale),
  );
  by("layer").max = facts.layers.length - 1;
  by("layer").disabled = facts.layers.length === 1;
  by("layer").addEventListener("input", () => set("layer", facts.layers[by("layer").value]));
  by("layer").addEventListener("change", speak);
  by("kept").addEventListener("input", () => set("kept", Number(by("kept").value)));
  by("opacity").addEventListener("input", () => set("opacity", Number(by("opacity").value)));
  for (const name of Object.keys(facts.cmaps)) element("option", "", by("cmap")).textContent = name;
  by("cmap").addEventListener("change", () => set("cmap", by("cmap").value));
  by("lock").addEventListener("click", () => set("held", !state.held));
  by("pin").addEventListener("click", () => togglePin(asked()));
  by("save").addEventListener("click", save);
  by("link").addEventListener("click", copyLink);
  by("reset").addEventListener("click", () => { Object.assign(state, startState()); changed(); });
  buildNumbers();
  buildMade();
}

// How the page was made, from the record that figures carry too.
function buildMade() {
  const size = (pair) => pair.join(" × ");
  const options = Object.entries(record.options).map(([name, value]) => `${name} ${value}`);
  const rows = [
    ["Model", record.model],
    ["Weights", record.weights],
    ["Weights SHA-256", record.weights_sha256 ?? "none"],
    ["Picture SHA-256", record.image_sha256],
    ["Picture", `${size(record.image_size)} pixels`],
    ["Model input", `${size(record.size)} pixels`],
    ["Options", options.join(", ")],
    ["Versions", Object.entries(record.versions).map((pair) => pair.join(" ")).join(", ")],
  ];
  if (facts.rollout) {
    const { fusion, residual, discard } = facts.rollout;
    rows.push(["Rollout", `heads by ${fusion}, residual ${residual}, discard ratio ${discard}`]);
  }
  for (const [name, value] of rows) {
    element("dt", "", by("made")).textContent = name;
    element("dd", "", by("made")).textContent = value;
  }
}

// What each number is, by its name.
const MEANINGS = {
  "Entropy": "of the row over all tokens, in nats, and its share of the uniform row's, ln N",
  "Focus": "the highest value over the mean of the patches",
  "Highest": "the highest value of a patch",
  "Prefix tokens": "attention that goes to tokens without a place in the picture",
  "Kept": "the fewest highest cells that hold the mass kept, and the mass that they hold; others are veiled",
  "Pointer": "the value of the cell under the pointer",
};
const numbers = {};
const highest = [];

// Made once and filled on every move: a hover must not build elements.
function buildNumbers() {
  for (const [name, meaning] of Object.entries(MEANINGS)) {
    if (name === "Prefix tokens" && !PREFIX) continue;
    const kind = name === "Pointer" ? "pointer" : "";
    const term = element("dt", kind, by("numbers"));
    term.textContent = name;
    term.title = meaning;
    numbers[name] = element("dd", kind, by("numbers"));
    element("dt", "", by("meanings")).textContent = name;
    element("dd", "", by("meanings")).textContent = meaning;
  }
  for (let place = 0; place < Math.min(5, CELLS); place++) {
    const item = element("li", "", by("highest"));
    const button = element("button", "cell", item);
    button.type = "button";
    button.title = "make this cell the query";
    const entry = { token: 0, name: element("span", "", button), value: element("span", "", button) };
    button.addEventListener("click", () => hold(entry.token));
    highest.push(entry);
  }
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The numbers of one of several panels: {row, range, mask, entropy, of}; mask is null where all is
// kept, entropy where the values are no distribution.
function showNumbers({ row, range, mask, entropy, of }, pointedToken) {
  write(by("numbers-of"), of);
  by("numbers-of").hidden = !of;
  const share = TOKENS > 1 ? entropy / Math.log(TOKENS) : 1;
  write(numbers.Entropy, entropy === null ? "none: a maximum is no distribution"
    : `${entropy.toFixed(2)} nats, ${percent(share)} of ln N`);
  write(numbers.Focus, range.sum > 0 ? `${decimal((range.high * CELLS) / range.sum)} × mean` : "0");
  write(numbers.Highest, decimal(range.high));
  if (PREFIX) {
    const parts = facts.prefix.map((name, token) => `${name}\u00a0${percent(row[token])}`);
    write(numbers["Prefix tokens"], parts.join(", "));
  }
  write(numbers.Kept, mask
    ? `${grouped(mask.count)} of ${grouped(CELLS)} cells hold ${percent(mask.mass)}`
    : `all ${grouped(CELLS)} cells`);
  write(numbers.Pointer, pointedToken >= 0
    ? `${tokenName(pointedToken)}: ${decimal(row[pointedToken])}` : "outside the picture");
  highestCells(row, highest.length).forEach(([token, value], place) => {
    highest[place].token = token;
    write(highest[place].name, tokenName(token));
    write(highest[place].value, decimal(value));
  });
}

// Controls as the state says.
function syncControls() {
  select("views", state.view);
  select("heads", state.view === "one" ? state.head : "");
  select("scales", state.scale);
  slide("layer", facts.layers.indexOf(state.layer), String(state.layer));
  slide("kept", state.kept, state.kept === 100 ? "all" : `${state.kept} %`);
  slide("opacity", state.opacity, `${state.opacity} %`);
  by("cmap").value = state.cmap;
  by("lock").setAttribute("aria-pressed", String(state.held));
  by("lock").disabled = state.view === "rollout";
  write(by("hint"), hint());
  syncQuery();
  syncPins();
  paintBar();
}

function slide(id, value, text) {
  by(id).value = value;
  by(id).setAttribute("aria-valuetext", text);
  write(by(`${id}-shown`), text);
}

// What depends on the query that is shown, which may be the patch under the pointer.
function syncQuery() {
  const query = asked();
  const none = state.view === "rollout";
  [...by("tokens").children].forEach((button, token) => {
    button.setAttribute("aria-pressed", String(query === token && !none));
    button.disabled = none;
  });
  const isPinned = state.pins.includes(query);
  write(by("pin"), isPinned ? "Unpin" : "Pin");
  by("pin").disabled = none || (!isPinned && state.pins.length === MOST_PINS);
}

function hint() {
  if (state.view === "rollout") {
    const whose = facts.rollout.query === "cls" ? "the class token" : "the mean over patches";
    return `Attention rollout of ${whose}, from the first layer up to layer ${state.layer}.`;
  }
  if (state.pins.length === MOST_PINS) return `${MOST_PINS} queries are pinned, which is the most.`;
  if (state.view === "heads" && state.pins.length) return "Pinned queries stand beside the query under One map.";
  return state.held
    ? "The query is held. Click or tap it again (or press Esc) to follow the pointer."
    : "The query follows the pointer. Click or tap a patch to hold it.";
}

// The list is made anew only when pins come or go, so that the focus stays where it is.
function syncPins() {
  const list = by("pins");
  const wanted = state.pins.join();
  if (list.dataset.pins === wanted) return;
  const place = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.dataset.pins = wanted;
  list.hidden = !state.pins.length;
  list.replaceChildren(...state.pins.map((token, number) => {
    const item = document.createElement("li");
    const button = element("button", "", item);
    button.type = "button";
    button.setAttribute("aria-label", `unpin ${tokenName(token)}`);
    button.textContent = `${number + 1} · ${shortName(token)} ×`;
    button.addEventListener("click", () => togglePin(token));
    return item;
  }));
  if (place >= 0) (list.querySelectorAll("button")[Math.min(place, state.pins.length - 1)] ?? by("pin")).focus();
}

function paintBar() {
  const context = by("bar").getContext("2d");
  const pixels = context.createImageData(256, 1);
  const table = colourTable(state.cmap);
  for (let i = 0; i < 256; i++) pixels.data.set([...table.subarray(3 * i, 3 * i + 3), 255], 4 * i);
  context.putImageData(pixels, 0, 0);
}
