// The panel at the side: controls that set the state, and the numbers of what is shown.

const by = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en");

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
  return `${number >= 9.95 ? number.toFixed(0) : number.toFixed(1)}\u00a0%`;
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
    input.addEventListener("change", () => choose(value));
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
    `${HEADS} heads · ${ROWS} × ${COLUMNS} patches · ${count(TOKENS)} tokens`;
  facts.prefix.forEach((name, token) => {
    const button = element("button", "", by("tokens"));
    button.type = "button";
    button.textContent = name;
    button.title = name === "CLS" ? "the class token's attention" : `the attention of token ${name}`;
    button.addEventListener("click", () => choose(token));
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
  by("kept").addEventListener("input", () => set("kept", Number(by("kept").value)));
  by("opacity").addEventListener("input", () => set("opacity", Number(by("opacity").value)));
  for (const name of Object.keys(facts.cmaps)) element("option", "", by("cmap")).textContent = name;
  by("cmap").addEventListener("change", () => set("cmap", by("cmap").value));
  by("lock").addEventListener("click", () => set("held", !state.held));
  by("pin").addEventListener("click", () => togglePin(state.query));
  by("save").addEventListener("click", save);
  by("link").addEventListener("click", copyLink);
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

const NUMBERS = ["Entropy", "Focus", "Highest", "Prefix", "Kept", "Pointer"];
const numbers = {};
const highest = [];

// Made once and filled on every move: a hover must not build elements.
function buildNumbers() {
  const titles = {
    Entropy: "of the row over all tokens, and its share of the uniform row's",
    Focus: "highest value over the mean of the patches",
    Highest: "highest value of a patch",
    Prefix: "attention that goes to tokens without a place in the picture",
    Kept: "cells that hold the mass that is kept, and the mass that they hold",
    Pointer: "value of the cell under the pointer",
  };
  for (const name of NUMBERS) {
    const term = element("dt", "", by("numbers"));
    term.textContent = name === "Prefix" ? "Prefix tokens" : name;
    term.title = titles[name];
    numbers[name] = element("dd", "", by("numbers"));
    if (name === "Prefix") term.hidden = numbers[name].hidden = !PREFIX;
  }
  for (let place = 0; place < Math.min(5, CELLS); place++) {
    const item = element("li", "", by("highest"));
    const button = element("button", "cell", item);
    button.type = "button";
    button.title = "make this cell the query";
    const entry = { token: 0, name: element("span", "", button), value: element("span", "", button) };
    button.addEventListener("click", () => choose(entry.token));
    highest.push(entry);
  }
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// row: (tokens), range: of its patch part. mask: what is kept, or null for all.
function showNumbers(row, range, mask, pointed) {
  const isRow = state.view === "rollout" || state.head !== "max" || state.view === "heads";
  const entropy = isRow ? entropyOf(row) : 0;
  const share = TOKENS > 1 ? entropy / Math.log(TOKENS) : 1;
  write(numbers.Entropy, isRow ? `${entropy.toFixed(2)} nats, ${percent(share)} of ln N`
    : "none: a maximum is no distribution");
  write(numbers.Focus, range.sum > 0 ? `${decimal((range.high * CELLS) / range.sum)} × mean` : "0");
  write(numbers.Highest, decimal(range.high));
  if (PREFIX) {
    const parts = facts.prefix.map((name, token) => `${name}\u00a0${percent(row[token])}`);
    write(numbers.Prefix, parts.join(", "));
  }
  write(numbers.Kept, mask
    ? `${count(mask.count)} of ${count(CELLS)} cells hold ${percent(mask.mass)}`
    : `all ${count(CELLS)} cells`);
  write(numbers.Pointer, pointed >= 0
    ? `${tokenName(pointed)}: ${decimal(row[pointed])}` : "outside the picture");
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
  by("layer").value = facts.layers.indexOf(state.layer);
  by("layer").setAttribute("aria-valuetext", `layer ${state.layer}`);
  write(by("layer-shown"), String(state.layer));
  by("kept").value = state.kept;
  write(by("kept-shown"), state.kept === 100 ? "all" : `${state.kept} %`);
  by("opacity").value = state.opacity;
  write(by("opacity-shown"), `${state.opacity} %`);
  by("cmap").value = state.cmap;
  const rollout = state.view === "rollout";
  [...by("tokens").children].forEach((button, token) => {
    button.setAttribute("aria-pressed", String(state.query === token));
    button.disabled = rollout;
  });
  by("lock").setAttribute("aria-pressed", String(state.held));
  by("lock").disabled = by("pin").disabled = rollout;
  write(by("pin"), state.pins.includes(state.query) ? "Unpin" : "Pin");
  write(by("hint"), hint());
  syncPins();
  paintBar();
}

function hint() {
  if (state.view === "rollout") {
    const whose = facts.rollout.query === "cls" ? "the class token" : "the mean over patches";
    return `Attention rollout of ${whose}, from the first layer up to layer ${state.layer}.`;
  }
  return state.held
    ? "The query is held. Click or tap it again (or press Esc) to follow the pointer."
    : "The query follows the pointer. Click or tap a patch to hold it.";
}

function syncPins() {
  const list = by("pins");
  list.hidden = !state.pins.length;
  list.replaceChildren(...state.pins.map((token, place) => {
    const item = document.createElement("li");
    const button = element("button", "", item);
    button.type = "button";
    button.setAttribute("aria-label", `unpin ${tokenName(token)}`);
    button.textContent = `${place + 1} · ${tokenName(token)} ×`;
    button.addEventListener("click", () => togglePin(token));
    return item;
  }));
}

function paintBar() {
  const context = by("bar").getContext("2d");
  const pixels = context.createImageData(256, 1);
  const table = colourTable(state.cmap);
  for (let i = 0; i < 256; i++) pixels.data.set([...table.subarray(3 * i, 3 * i + 3), 255], 4 * i);
  context.putImageData(pixels, 0, 0);
}
