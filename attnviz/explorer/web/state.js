// The state of the view, and its short form in the link's fragment.

const VIEWS = facts.rollout ? ["one", "heads", "rollout"] : ["one", "heads"];
const SCALES = ["zero", "panel", "shared"];
const MAX_PINS = 11;

const state = startState();

// The state of a page that is opened without a fragment.
function startState() {
  const centre = tokenOfCell(Math.floor(ROWS / 2), Math.floor(COLUMNS / 2));
  return {
    view: "one",
    layer: facts.layers[facts.layers.length - 1],
    head: "mean",
    query: facts.prefix[0] === "CLS" ? 0 : centre,
    held: false,
    kept: 100,
    scale: "zero",
    cmap: Object.keys(facts.cmaps)[0],
    opacity: Math.round(100 * facts.overlay.alpha),
    pins: [],
  };
}

function tokenToText(token) {
  const cell = cellOfToken(token);
  return cell ? `${cell[0]}.${cell[1]}` : facts.prefix[token].toLowerCase();
}

// The token, or -1 for a text that names none of this page.
function tokenFromText(text) {
  const match = /^(\d+)\.(\d+)$/.exec(text);
  if (!match) return facts.prefix.findIndex((name) => name.toLowerCase() === text);
  const row = Number(match[1]), column = Number(match[2]);
  return row < ROWS && column < COLUMNS ? tokenOfCell(row, column) : -1;
}

function stateToText() {
  const parts = new URLSearchParams();
  parts.set("view", state.view);
  parts.set("layer", state.layer);
  parts.set("head", state.head);
  parts.set("query", tokenToText(state.query));
  if (state.held) parts.set("hold", "1");
  if (state.kept < 100) parts.set("kept", state.kept);
  parts.set("scale", state.scale);
  parts.set("colours", state.cmap);
  parts.set("opacity", state.opacity);
  if (state.pins.length) parts.set("pins", state.pins.map(tokenToText).join("_"));
  return parts.toString();
}

// Take what the fragment says and this page has; the rest is as at the start.
function stateFromText(text) {
  const parts = new URLSearchParams(text.replace(/^#/, ""));
  const given = (name) => parts.get(name) ?? "";
  const integer = (name, low, high) => {
    const number = Number(given(name));
    return /^\d{1,4}$/.test(given(name)) && number >= low && number <= high ? number : null;
  };
  Object.assign(state, startState());
  if (VIEWS.includes(given("view"))) state.view = given("view");
  const layer = integer("layer", 0, 9999);
  if (facts.layers.includes(layer)) state.layer = layer;
  const head = ["mean", "max"].includes(given("head")) ? given("head") : integer("head", 0, HEADS - 1);
  if (head !== null) state.head = head;
  const query = tokenFromText(given("query"));
  if (query >= 0) state.query = query;
  state.held = given("hold") === "1";
  state.kept = integer("kept", 1, 100) ?? state.kept;
  if (SCALES.includes(given("scale"))) state.scale = given("scale");
  if (Object.hasOwn(facts.cmaps, given("colours"))) state.cmap = given("colours");
  state.opacity = integer("opacity", 0, 100) ?? state.opacity;
  const pins = given("pins").split("_").map(tokenFromText).filter((token) => token >= 0);
  state.pins = [...new Set(pins)].slice(0, MAX_PINS);
}
