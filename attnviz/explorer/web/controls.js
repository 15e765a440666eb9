// The controls: they set the state, and show it.

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
    button.title = name === "CLS" ? "attention of the CLS token" : `attention of token ${name}`;
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
    [["zero", "From 0", "each map from 0 to its highest value"],
      ["panel", "Min–max", "each map from its lowest to its highest value: small differences fill the scale"],
      ["shared", "Shared", "all maps from 0 to the highest value of any head of the queries shown"]],
    (scale) => set("scale", scale),
  );
  by("layer").max = facts.layers.length - 1;
  by("layer").disabled = facts.layers.length === 1;
  by("layer").addEventListener("input", () => set("layer", facts.layers[by("layer").value]));
  by("layer").addEventListener("change", announce);
  by("kept").addEventListener("input", () => set("kept", Number(by("kept").value)));
  by("opacity").addEventListener("input", () => set("opacity", Number(by("opacity").value)));
  for (const name of Object.keys(facts.cmaps)) element("option", "", by("cmap")).textContent = name;
  by("cmap").addEventListener("change", () => set("cmap", by("cmap").value));
  by("lock").addEventListener("click", () => set("held", !state.held));
  by("pin").addEventListener("click", () => togglePin(currentQuery()));
  by("save").addEventListener("click", save);
  by("link").addEventListener("click", copyLink);
  by("reset").addEventListener("click", () => { Object.assign(state, startState()); changed(); });
  buildStatistics();
  buildProvenance();
}

// How the page was made, from the record that figures carry too.
function buildProvenance() {
  const size = (pair) => pair.join(" × ");
  const options = Object.entries(record.options).map(([name, value]) => `${name} ${value}`);
  const rows = [
    ["Model", record.model],
    ["Weights", record.weights],
    ["Weights SHA-256", record.weights_sha256 ?? "none"],
    ["Image SHA-256", record.image_sha256],
    ["Image", `${size(record.image_size)} pixels`],
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

// The controls as the state says.
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

// What depends on the query that is shown, which may be the patch under the pointer.
function syncQuery() {
  const query = currentQuery();
  const isRollout = state.view === "rollout";
  [...by("tokens").children].forEach((button, token) => {
    button.setAttribute("aria-pressed", String(query === token && !isRollout));
    button.disabled = isRollout;
  });
  const isPinned = state.pins.includes(query);
  write(by("pin"), isPinned ? "Unpin" : "Pin");
  by("pin").disabled = isRollout || (!isPinned && state.pins.length === MAX_PINS);
}

function hint() {
  if (state.view === "rollout") {
    const query = facts.rollout.query === "cls" ? "the CLS token" : "the mean over patches";
    return `Attention rollout of ${query}, from the first layer up to layer ${state.layer}.`;
  }
  if (state.pins.length === MAX_PINS) return `${MAX_PINS} queries are pinned, the maximum.`;
  return state.held
    ? "The query is held. Click it again, or press Esc, to follow the pointer."
    : "The query follows the pointer. Click or tap a patch to hold it.";
}

// The list is rebuilt only when pins come or go, so that the focus stays where it is.
function syncPins() {
  const list = by("pins");
  const wanted = state.pins.join();
  if (list.dataset.pins === wanted) return;
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.dataset.pins = wanted;
  list.hidden = !state.pins.length;
  list.replaceChildren(...state.pins.map((token, i) => {
    const item = document.createElement("li");
    const button = element("button", "", item);
    button.type = "button";
    button.setAttribute("aria-label", `unpin ${tokenName(token)}`);
    button.textContent = `${i + 1} · ${shortName(token)} ×`;
    button.addEventListener("click", () => togglePin(token));
    return item;
  }));
  if (focused >= 0) {
    (list.querySelectorAll("button")[Math.min(focused, state.pins.length - 1)] ?? by("pin")).focus();
  }
}
