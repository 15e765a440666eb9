// From state to picture, and from pointer and keys to state.

let data = null; // the layer that is shown
let rollout = null;
let pointed = { token: -1, panel: 0 }; // the patch under the pointer
let pressed = -1; // the patch where a click or tap began: the page may move before it ends
let scheduled = false;
let unspoken = false; // whether the next drawing is to be told to a screen reader
let linking = 0;
let typed = { digits: "", at: 0 };
let pinned = { layer: -1, rows: new Map() };
const timing = { draws: 0, milliseconds: 0 };

// The token whose attention is shown now.
function asked() {
  return pointed.token >= 0 && !state.held && state.view !== "rollout" ? pointed.token : state.query;
}

function headName(head) {
  if (head === "mean") return "mean of heads";
  return head === "max" ? "maximum of heads" : `head ${head}`;
}

// The rows of a pinned token: kept, since pins stay while the query moves.
function rowsOfPin(token) {
  if (pinned.layer !== data.layer) pinned = { layer: data.layer, rows: new Map() };
  if (!pinned.rows.has(token)) pinned.rows.set(token, attentionOf(data, token));
  return pinned.rows.get(token);
}

// The panels of the view: rows (tokens) with a name and marks; ``rows`` of all heads, if any. key:
// what decides a pin's row, by which it is known to be drawn already.
function panelsShown() {
  if (state.view === "rollout") {
    const place = facts.rollout.depths.indexOf(state.layer);
    const row = rollout.subarray(place * TOKENS, (place + 1) * TOKENS);
    return [{ row, name: `Rollout, layers 0 to ${state.layer}`, marks: [], rows: row, spread: true }];
  }
  const query = asked();
  const rows = attentionOf(data, query);
  const own = [query, "", "query"];
  if (state.view === "heads") {
    return ["mean", ...Array(HEADS).keys()].map((head) => {
      const name = head === "mean" ? "Mean" : `Head ${head}`;
      return { row: fused(rows, head), name, marks: [own], rows, spread: true };
    });
  }
  const spread = state.head !== "max";
  const pins = state.pins.map((token, place) => [token, String(place + 1), "pinned"]);
  const first = { row: fused(rows, state.head), name: tokenName(query), marks: [...pins, own], rows, spread };
  return [first, ...state.pins.map((token, place) => {
    const all = rowsOfPin(token);
    const name = `${place + 1} · ${tokenName(token)}`;
    const key = `${data.layer} ${token} ${state.head}`;
    return { row: fused(all, state.head), name, marks: [pins[place]], rows: all, spread, key };
  })];
}

// The numbers of a panel's row. A maximum over heads is no distribution, and has no entropy.
function measured({ row, name, spread }, panels) {
  return {
    row,
    range: rangeOf(row),
    mask: state.kept < 100 ? massMask(row, state.kept / 100) : null,
    entropy: spread ? entropyOf(row) : null,
    of: panels.length > 1 ? name : "",
  };
}

function sharedLimits(panels) {
  let high = 0;
  for (const { rows } of new Map(panels.map((panel) => [panel.rows, panel])).values()) {
    for (let start = 0; start < rows.length; start += TOKENS) {
      high = Math.max(high, rangeOf(rows.subarray(start, start + TOKENS)).high);
    }
  }
  return limitsOf({ low: 0, high });
}

function draw() {
  scheduled = false;
  if (state.view === "rollout" ? !rollout : !data || data.layer !== state.layer) return;
  const start = performance.now();
  const panels = panelsShown();
  if (panelsInView().length !== panels.length) showPanels(panels.length);
  const shared = state.scale === "shared" ? sharedLimits(panels) : null;
  panels.forEach((shown, number) => {
    const panel = pool[number];
    const look = `${shown.key} ${shared} ${state.kept} ${state.cmap} ${state.opacity}`;
    if (shown.key && panel.look === look) return; // a pin that shows this already
    panel.look = shown.key && look;
    panel.told = measured(shown, panels);
    panel.limits = shared ?? limitsOf(panel.told.range);
    paint(panel, shown.row, panel.limits, panel.told.mask?.kept);
    mark(panel, shown.marks);
    write(panel.name, shown.name);
    write(panel.summary, summary(panel.told));
  });
  const panel = pointed.token >= 0 && pointed.panel < panels.length ? pointed.panel : 0;
  showNumbers(pool[panel].told, pointed.token);
  showLegend(pool[0].limits, panels.length);
  write(by("headline"), headline(pool[0].told));
  panels.forEach(({ name }, number) => {
    const { frame } = pool[number];
    const label = panels.length > 1 ? name : by("headline").textContent;
    if (frame.getAttribute("aria-label") !== label) frame.setAttribute("aria-label", label);
  });
  syncQuery();
  if (unspoken) {
    unspoken = false;
    write(by("spoken"), `${by("headline").textContent}.`);
  }
  timing.draws += 1;
  timing.milliseconds = performance.now() - start;
}

// Entropy and values of a row, for the caption of one of several panels.
function summary({ entropy, range }) {
  const values = state.scale === "shared" ? `max ${decimal(range.high, 2)}`
    : `${decimal(range.low, 2)}–${decimal(range.high, 2)}`;
  return entropy === null ? values : `H ${entropy.toFixed(2)} · ${values}`;
}

function headline({ entropy }) {
  const told = entropy === null || state.view === "heads" ? "" : ` · H ${entropy.toFixed(2)}`;
  if (state.view === "rollout") return `Rollout up to layer ${state.layer}${told}`;
  const whose = state.view === "heads" ? "every head" : headName(state.head);
  const name = tokenName(asked());
  return `${name[0].toUpperCase()}${name.slice(1)} · layer ${state.layer} · ${whose}${told}`;
}

function showLegend([low, high], count) {
  const each = state.scale === "panel" && count > 1;
  write(by("low"), each ? "lowest" : decimal(low));
  write(by("high"), each ? "highest" : decimal(high));
  write(by("scale-words"), each ? "of each map, as told below it" : state.scale === "shared" ? "one scale" : "");
}

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

// The state has changed: controls, link and picture follow.
async function changed() {
  syncControls();
  clearTimeout(linking);
  linking = setTimeout(link, 150);
  await load();
  schedule();
}

// Not at every step of a slider: browsers refuse more than a few changes a second.
function link() {
  history.replaceState(null, "", `#${stateToText()}`);
}

async function load() {
  const { view, layer } = state;
  const wanted = view === "rollout" ? "The rollout" : `Layer ${layer}`;
  // A later choice may have come first: then what has been read is of no concern any more.
  const isPast = () => state.view !== view || (view !== "rollout" && state.layer !== layer);
  try {
    if (view === "rollout") rollout ??= await readRollout();
    else if (data?.layer !== layer) {
      const read = await layerOf(layer);
      if (!isPast()) data = read;
    }
    if (!isPast()) notice("");
  } catch {
    if (isPast()) return;
    notice(`${wanted} cannot be read: its data in this file is damaged. Is the file complete?`);
    write(by("headline"), `${wanted} cannot be read`);
  }
}

// What stands above the page; while it does, panels are grey, since they are not what was asked for.
function notice(text) {
  write(by("notice"), text);
  by("notice").hidden = !text;
  container.classList.toggle("stale", Boolean(text));
}

// Make a token the query, and hold it.
function hold(token) {
  state.query = token;
  state.held = true;
  if (state.view === "rollout") state.view = "one";
  changed();
  speak();
}

// The same by a click in the picture: the held query that is chosen again is let go.
function choose(token) {
  if (state.held && state.query === token) set("held", false);
  else hold(token);
}

function togglePin(token) {
  const others = state.pins.filter((other) => other !== token);
  const added = others.length === state.pins.length;
  if (added && others.length === MOST_PINS) return;
  state.pins = added ? [...others, token] : others;
  if (added) state.view = "one";
  changed();
}

// Tell a screen reader what is shown, once it is.
function speak() {
  unspoken = true;
  schedule();
}

function stepLayer(step) {
  const place = facts.layers.indexOf(state.layer) + step;
  if (facts.layers[place] !== undefined) set("layer", facts.layers[place]);
}

function stepHead(step) {
  const heads = ["mean", "max", ...Array(HEADS).keys()];
  const place = heads.indexOf(state.head) + step;
  if (heads[place] !== undefined) showHead(heads[place]);
}

function showHead(head) {
  state.view = "one";
  set("head", head);
}

// Move the query that is shown by one cell; from a prefix token to the centre.
function stepQuery(down, right) {
  const cell = cellOfToken(asked());
  const [row, column] = cell ? [cell[0] + down, cell[1] + right] : [Math.floor(ROWS / 2), Math.floor(COLUMNS / 2)];
  if (row >= 0 && row < ROWS && column >= 0 && column < COLUMNS) hold(tokenOfCell(row, column));
}

// Digits typed one after the other make one number where there are more than ten heads.
function typeDigit(digit) {
  const now = performance.now();
  const joined = now - typed.at < 700 ? typed.digits + digit : digit;
  const digits = Number(joined) < HEADS ? joined : digit;
  typed = { digits, at: now };
  if (Number(digits) < HEADS) showHead(Number(digits));
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const KEYS = {
  m: () => showHead("mean"),
  x: () => showHead("max"),
  a: () => set("view", state.view === "heads" ? "one" : "heads"),
  o: () => facts.rollout && set("view", state.view === "rollout" ? "one" : "rollout"),
  c: () => PREFIX && state.view !== "rollout" && hold(0),
  p: () => state.view !== "rollout" && togglePin(asked()),
  "[": () => stepLayer(-1),
  "]": () => stepLayer(1),
  s: () => save(),
  escape: () => set("held", false),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key];
  const action = KEYS[event.key.toLowerCase()];
  if (arrow) {
    // Sliders, lists and radio buttons have arrow keys of their own.
    if (event.target.closest("input, select")) return;
    if (event.target === container || event.shiftKey) stepQuery(...arrow);
    else if (arrow[0]) stepLayer(-arrow[0]);
    else stepHead(arrow[1]);
  } else if (/^[0-9]$/.test(event.key)) typeDigit(event.key);
  else if (action && !event.target.closest("select")) action();
  else return;
  event.preventDefault();
  speak();
}

function onPointer(event) {
  const place = placeOf(event);
  if (place.token === pointed.token && place.panel === pointed.panel) return;
  pointed = place;
  schedule();
}

function listen() {
  container.addEventListener("pointermove", onPointer);
  container.addEventListener("pointerdown", (event) => {
    onPointer(event);
    pressed = pointed.token;
  });
  // A finger that was drawn over the picture leaves the query where it was lifted. No click follows.
  container.addEventListener("pointerup", (event) => {
    const { token } = pointed;
    const drawn = event.pointerType === "touch" && event.isPrimary && token >= 0 && token !== pressed;
    if (drawn && state.view !== "rollout") hold(token);
  });
  container.addEventListener("pointerleave", () => { pointed = { token: -1, panel: 0 }; schedule(); });
  // The focus stays where it is, so that arrow keys still mean layer and head after a click.
  container.addEventListener("mousedown", (event) => event.preventDefault());
  container.addEventListener("click", () => {
    if (pressed >= 0 && state.view !== "rollout") choose(pressed);
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", () => arrange(panelsInView().length));
  window.addEventListener("hashchange", () => { stateFromText(location.hash); changed(); });
  // A picture that is zoomed in is moved by the finger in both directions.
  window.visualViewport?.addEventListener("resize", () => {
    container.classList.toggle("zoomed", window.visualViewport.scale > 1.01);
  });
}

// For the browser's console and for tests: numbers as they are shown.
window.attnviz = {
  facts,
  state,
  timing,
  // (heads) arrays of (tokens) numbers.
  attention: async (layer, token) => {
    const rows = attentionOf(await layerOf(layer), token);
    return Array.from({ length: HEADS }, (_, head) => fused(rows, head));
  },
  rollout: readRollout,
  // What "Save PNG" saves, as a data address.
  picture: () => drawn().toDataURL(),
};

if ("DecompressionStream" in window) {
  document.querySelector("main").hidden = false;
  buildControls();
  stateFromText(location.hash);
  listen();
  changed();
} else {
  notice("This browser is too old for this page: it cannot unpack its data (DecompressionStream).");
}
