// From state to panels: which rows are shown, on which scale, with which words.

let data = null; // the layer that is shown
let rollout = null;
let pointer = { token: -1, panel: 0 }; // the patch under the pointer, and the last panel under it
let scheduled = false;
let unannounced = false; // whether a screen reader will announce the next drawing
let pinCache = { layer: -1, rows: new Map() };
const timing = { draws: 0, milliseconds: 0 };

// The token whose attention is shown now.
function currentQuery() {
  return pointer.token >= 0 && !state.held && state.view !== "rollout" ? pointer.token : state.query;
}

function headName(head) {
  if (head === "mean") return "mean of heads";
  return head === "max" ? "maximum of heads" : `head ${head}`;
}

// The rows of a pinned token, cached: pins stay while the query moves.
function rowsOfPin(token) {
  if (pinCache.layer !== data.layer) pinCache = { layer: data.layer, rows: new Map() };
  if (!pinCache.rows.has(token)) pinCache.rows.set(token, attentionOf(data, token));
  return pinCache.rows.get(token);
}

// The panels of the view, in groups of one query each: ``row`` (tokens) with its name and marks,
// ``rows`` of all heads, ``isDistribution``, and for pins a key that decides how the row looks.
function viewPanels() {
  if (state.view === "rollout") {
    const index = facts.rollout.depths.indexOf(state.layer);
    const row = rollout.subarray(index * TOKENS, (index + 1) * TOKENS);
    const name = `Rollout, layers 0 to ${state.layer}`;
    return { panels: [{ row, rows: row, name, marks: [], isDistribution: true }], groupSize: 1, main: 0 };
  }
  const query = currentQuery();
  const pinMarks = state.pins.map((token, i) => [token, String(i + 1), "pinned"]);
  const marks = state.pins.includes(query) ? pinMarks : [...pinMarks, [query, "", "query"]];
  const groups = state.pins.map((token, i) => ({
    token, rows: rowsOfPin(token), marks: [pinMarks[i]], number: i + 1, key: `${data.layer} ${token} ${i}`,
  }));
  // A held query that is pinned has its panels already.
  let main = state.held ? state.pins.indexOf(query) : -1;
  if (main >= 0) Object.assign(groups[main], { marks, key: `${groups[main].key} ${state.pins}` });
  else {
    groups.unshift({ token: query, rows: attentionOf(data, query), marks });
    main = 0;
  }
  const heads = state.view === "heads" ? ["mean", "max", ...Array(HEADS).keys()] : [state.head];
  const panels = groups.flatMap(({ token, rows, marks: shown, number, key }) => heads.map((head) => {
    const title = state.view === "heads" ? headTitle(head) : tokenName(token);
    return {
      row: fuseHeads(rows, head), rows, marks: shown,
      name: number ? `${number} · ${title}` : title,
      isDistribution: head !== "max",
      key: key && `${key} ${head} ${state.view}`,
    };
  }));
  // One map each for several queries: the panels flow like those of one group.
  const groupSize = heads.length > 1 ? heads.length : panels.length;
  return { panels, groupSize, main: main * heads.length };
}

function headTitle(head) {
  if (head === "mean") return "Mean";
  return head === "max" ? "Max" : `Head ${head}`;
}

// The statistics of a panel's row. A maximum over heads is not a distribution and has no entropy.
function statisticsOf({ row, name, isDistribution }, panelCount) {
  return {
    row,
    range: rangeOf(row),
    mask: state.kept < 100 ? massMask(row, state.kept / 100) : null,
    entropy: isDistribution ? entropyOf(row) : null,
    name: panelCount > 1 ? name : "",
  };
}

// What the two ends of the colours stand for; a flat map is bright all over, zeros are dark.
function limitsOf({ low, high }) {
  if (high - low > 1e-6 * Math.abs(high)) return [low, high];
  return high > 0 ? [0, high] : [0, 1];
}

function ownLimits({ low, high }) {
  return limitsOf({ low: state.scale === "panel" ? low : 0, high });
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
  const { panels, groupSize, main } = viewPanels();
  if (visiblePanels().length !== panels.length || layout.groupSize !== groupSize) {
    showPanels(panels.length, groupSize);
    if (pointer.token < 0) pointer.panel = main;
  }
  const shared = state.scale === "shared" ? sharedLimits(panels) : null;
  panels.forEach((shown, i) => {
    const panel = pool[i];
    const look = `${shown.key} ${shared} ${state.scale} ${state.kept} ${state.cmap} ${state.opacity}`;
    if (shown.key && panel.look === look) return; // a pin that is drawn already
    panel.look = shown.key && look;
    panel.statistics = statisticsOf(shown, panels.length);
    panel.limits = shared ?? ownLimits(panel.statistics.range);
    paint(panel, shown.row, panel.limits, panel.statistics.mask?.kept);
    mark(panel, shown.marks);
    write(panel.name, shown.name);
    write(panel.summary, summary(panel.statistics));
  });
  showStatistics(pool[pointer.panel < panels.length ? pointer.panel : main].statistics, pointer.token);
  showLegend(pool[main].limits, panels.length);
  write(by("headline"), headline(pool[main].statistics));
  panels.forEach(({ name }, i) => {
    const { frame } = pool[i];
    const label = panels.length > 1 ? name : by("headline").textContent;
    if (frame.getAttribute("aria-label") !== label) frame.setAttribute("aria-label", label);
  });
  syncQuery();
  if (unannounced) {
    unannounced = false;
    write(by("spoken"), `${by("headline").textContent}.`);
  }
  timing.draws += 1;
  timing.milliseconds = performance.now() - start;
}

// Entropy and values of a row, for the caption of one of several panels.
function summary({ entropy, range }) {
  const values = state.scale === "panel" ? `${decimal(range.low, 2)}–${decimal(range.high, 2)}`
    : `max ${decimal(range.high, 2)}`;
  return entropy === null ? values : `H ${entropy.toFixed(2)} · ${values}`;
}

function headline({ entropy }) {
  const suffix = entropy === null || state.view === "heads" ? "" : ` · H ${entropy.toFixed(2)}`;
  if (state.view === "rollout") return `Rollout up to layer ${state.layer}${suffix}`;
  const heads = state.view === "heads" ? "all heads" : headName(state.head);
  const name = tokenName(currentQuery());
  return `${name[0].toUpperCase()}${name.slice(1)} · layer ${state.layer} · ${heads}${suffix}`;
}

// The ends of the colour bar, and where the uniform row's 1/N lies on it.
function showLegend([low, high], count) {
  const each = state.scale !== "shared" && count > 1;
  const uniform = 1 / TOKENS;
  write(by("low"), each ? (state.scale === "zero" ? "0" : "lowest") : decimal(low));
  write(by("high"), each ? "highest" : decimal(high));
  const words = each ? ["of each map"] : state.scale === "shared" ? ["of all maps"] : [];
  write(by("scale-words"), [...words, `uniform 1/N = ${decimal(uniform, 2)}`].join(" · "));
  const tick = by("uniform");
  const share = (uniform - low) / (high - low);
  tick.hidden = each || !(share >= 0 && share <= 1);
  if (!tick.hidden) tick.style.left = `${100 * share}%`;
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
