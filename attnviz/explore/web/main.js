// From state to picture, and from pointer and keys to state.

let data = null; // the layer that is shown
let rollout = null;
let pointed = -1; // the patch under the pointer
let pressed = -1; // the patch where a click or tap began: the page may move before it ends
let scheduled = false;
let linking = 0;
let typed = { digits: "", at: 0 };
let pinned = { layer: -1, rows: new Map() };
const timing = { draws: 0, milliseconds: 0 };

// The token whose attention is shown now.
function asked() {
  return pointed >= 0 && !state.held ? pointed : state.query;
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

// Entropy and highest value of a row, for a caption.
function summary(row) {
  const highest = `max ${decimal(rangeOf(row).high, 2)}`;
  return state.view === "one" && state.head === "max" ? highest : `H ${entropyOf(row).toFixed(2)} · ${highest}`;
}

// The panels of the view: rows (tokens) with a caption and marks; ``rows`` of all heads, if any.
function panelsShown() {
  if (state.view === "rollout") {
    const place = facts.rollout.depths.indexOf(state.layer);
    const row = rollout.subarray(place * TOKENS, (place + 1) * TOKENS);
    return [{ row, caption: `Rollout, layers 0 to ${state.layer} · ${summary(row)}`, marks: [], rows: row }];
  }
  const query = asked();
  const rows = attentionOf(data, query);
  const own = [query, "", "query"];
  if (state.view === "heads") {
    const heads = ["mean", ...Array(HEADS).keys()];
    return heads.map((head) => {
      const row = fused(rows, head);
      const name = head === "mean" ? "Mean" : `Head ${head}`;
      return { row, caption: `${name} · ${summary(row)}`, marks: [own], rows };
    });
  }
  const pins = state.pins.map((token, place) => [token, String(place + 1), "pinned"]);
  const row = fused(rows, state.head);
  const panels = [{ row, caption: `${tokenName(query)} · ${summary(row)}`, marks: [...pins, own], rows }];
  state.pins.forEach((token, place) => {
    const all = rowsOfPin(token);
    const pinnedRow = fused(all, state.head);
    const caption = `${place + 1} · ${tokenName(token)} · ${summary(pinnedRow)}`;
    const key = `${data.layer} ${token} ${state.head}`;
    panels.push({ row: pinnedRow, caption, marks: [pins[place]], rows: all, key });
  });
  return panels;
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
  if (pool.filter((panel) => !panel.figure.hidden).length !== panels.length) showPanels(panels.length);
  const shared = state.scale === "shared" ? sharedLimits(panels) : null;
  panels.forEach((shown, number) => {
    const panel = pool[number];
    const look = `${shown.key} ${shared} ${state.kept} ${state.cmap} ${state.opacity}`;
    if (shown.key && panel.look === look) return; // a pin that shows this already
    panel.look = shown.key && look;
    const range = rangeOf(shown.row);
    const mask = state.kept < 100 ? massMask(shown.row, state.kept / 100) : null;
    const limits = shared ?? limitsOf(range);
    paint(panel, shown.row, limits, mask?.kept);
    mark(panel, shown.marks);
    write(panel.caption, shown.caption);
    if (number === 0) {
      showNumbers(shown.row, range, mask, pointed);
      showLegend(limits, panels.length);
    }
  });
  write(by("headline"), headline());
  timing.draws += 1;
  timing.milliseconds = performance.now() - start;
}

function headline() {
  if (state.view === "rollout") return `Rollout up to layer ${state.layer}`;
  const whose = state.view === "heads" ? "every head" : headName(state.head);
  const name = tokenName(asked());
  return `${name[0].toUpperCase()}${name.slice(1)} · layer ${state.layer} · ${whose}`;
}

function showLegend([low, high], count) {
  const each = state.scale === "panel" && count > 1;
  write(by("low"), each ? "lowest" : decimal(low));
  write(by("high"), each ? "highest" : decimal(high));
  write(by("scale-words"), each ? "of each map" : state.scale === "shared" ? "one scale" : "");
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
  try {
    if (state.view === "rollout") rollout ??= await readRollout();
    else if (data?.layer !== state.layer) {
      const read = await layerOf(state.layer);
      if (read.layer === state.layer) data = read; // a later choice may have come first
    }
  } catch (error) {
    notice(`The data of this page cannot be read (${error.message}). Is the file complete?`);
  }
}

function notice(text) {
  by("notice").textContent = text;
  by("notice").hidden = false;
}

// Make a token the query, and hold it; a held one that is chosen again is let go.
function choose(token) {
  const again = state.held && state.query === token;
  state.query = token;
  state.held = !again;
  if (state.view === "rollout") state.view = "one";
  changed();
  speak();
}

function togglePin(token) {
  const without = state.pins.filter((pinned) => pinned !== token);
  const added = without.length === state.pins.length && without.length < MOST_PINS;
  state.pins = added ? [...without, token] : without;
  if (added) state.view = "one";
  changed();
}

function speak() {
  requestAnimationFrame(() => requestAnimationFrame(() => {
    write(by("spoken"), `${by("headline").textContent}. Entropy ${numbers.Entropy.textContent}.`);
  }));
}

function stepLayer(by_) {
  const place = facts.layers.indexOf(state.layer) + by_;
  if (facts.layers[place] !== undefined) set("layer", facts.layers[place]);
}

function stepHead(by_) {
  const heads = ["mean", "max", ...Array(HEADS).keys()];
  const place = heads.indexOf(state.head) + by_;
  if (heads[place] !== undefined) showHead(heads[place]);
}

function showHead(head) {
  state.view = "one";
  set("head", head);
}

// Move the query by one cell; from a prefix token to the centre.
function stepQuery(down, right) {
  const [row, column] = cellOfToken(state.query) ?? [Math.floor(ROWS / 2), Math.floor(COLUMNS / 2)];
  const moved = state.query >= PREFIX ? [row + down, column + right] : [row, column];
  if (moved[0] < 0 || moved[0] >= ROWS || moved[1] < 0 || moved[1] >= COLUMNS) return;
  state.query = tokenOfCell(...moved);
  state.held = true;
  if (state.view === "rollout") state.view = "one";
  changed();
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
  c: () => PREFIX && state.view !== "rollout" && choose(0),
  p: () => state.view !== "rollout" && togglePin(state.query),
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
    if (event.target === container) stepQuery(...arrow);
    else if (arrow[0]) stepLayer(-arrow[0]);
    else stepHead(arrow[1]);
  } else if (/^[0-9]$/.test(event.key)) typeDigit(event.key);
  else if (action && !event.target.closest("select")) action();
  else return;
  event.preventDefault();
  speak();
}

function onPointer(event) {
  const token = tokenAt(event);
  if (token === pointed) return;
  pointed = token;
  schedule();
}

function listen() {
  container.addEventListener("pointermove", onPointer);
  container.addEventListener("pointerdown", (event) => {
    onPointer(event);
    pressed = pointed;
  });
  container.addEventListener("pointerleave", () => { pointed = -1; schedule(); });
  container.addEventListener("click", () => {
    if (pressed >= 0 && state.view !== "rollout") choose(pressed);
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", () => { arrange(pool.filter((panel) => !panel.figure.hidden).length); });
  window.addEventListener("hashchange", () => { stateFromText(location.hash); changed(); });
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
};

if ("DecompressionStream" in window) {
  buildControls();
  stateFromText(location.hash);
  listen();
  changed();
} else {
  notice("This browser is too old for this page: it cannot unpack its data (DecompressionStream).");
}
