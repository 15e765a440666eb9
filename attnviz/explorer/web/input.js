// From pointer and keys to state.

let pressed = -1; // the patch where a click or tap began: the page may move before it ends
let typed = { digits: "", at: 0 };

// Make a token the query, and hold it.
function hold(token) {
  state.query = token;
  state.held = true;
  if (state.view === "rollout") state.view = "one";
  changed();
  announce();
}

// The same by a click in the image: a held query that is clicked again is released.
function choose(token) {
  if (state.held && state.query === token) set("held", false);
  else hold(token);
}

// Back to the first query, and follow the pointer.
function release() {
  Object.assign(state, { held: false, query: startState().query });
  changed();
}

function togglePin(token) {
  const others = state.pins.filter((other) => other !== token);
  const added = others.length === state.pins.length;
  if (added && others.length === MAX_PINS) return;
  state.pins = added ? [...others, token] : others;
  changed();
}

function stepLayer(step) {
  const layer = facts.layers[facts.layers.indexOf(state.layer) + step];
  if (layer !== undefined) set("layer", layer);
}

function stepHead(step) {
  const heads = ["mean", "max", ...Array(HEADS).keys()];
  const head = heads[heads.indexOf(state.head) + step];
  if (head !== undefined) showHead(head);
}

function showHead(head) {
  state.view = "one";
  set("head", head);
}

// Move the query that is shown by one cell; from a prefix token to the centre.
function stepQuery(down, right) {
  const cell = cellOfToken(currentQuery());
  const [row, column] = cell ? [cell[0] + down, cell[1] + right] : [Math.floor(ROWS / 2), Math.floor(COLUMNS / 2)];
  if (row >= 0 && row < ROWS && column >= 0 && column < COLUMNS) hold(tokenOfCell(row, column));
}

// Digits typed in quick succession make one number where there are more than ten heads.
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
  p: () => state.view !== "rollout" && togglePin(currentQuery()),
  "[": () => stepLayer(-1),
  "]": () => stepLayer(1),
  s: () => save(),
  escape: release,
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
  announce();
}

function movePointer({ token, panel }, isTouch) {
  if (token === pointer.token && (token < 0 || panel === pointer.panel)) return;
  const query = currentQuery();
  pointer = token < 0 ? { token, panel: pointer.panel } : { token, panel };
  // On the way to the controls the last patch stays the query. A finger that leaves the image has
  // scrolled the page and chosen nothing.
  if (token < 0 && !isTouch && query !== state.query) set("query", query);
  else schedule();
}

function listen() {
  const isTouch = (event) => event.pointerType === "touch";
  container.addEventListener("pointermove", (event) => movePointer(patchAt(event), isTouch(event)));
  container.addEventListener("pointerdown", (event) => {
    movePointer(patchAt(event), isTouch(event));
    pressed = pointer.token;
  });
  // A finger dragged over the image leaves the query where it is lifted. No click follows.
  container.addEventListener("pointerup", (event) => {
    const { token } = pointer;
    const dragged = isTouch(event) && event.isPrimary && token >= 0 && token !== pressed;
    if (dragged && state.view !== "rollout") hold(token);
  });
  container.addEventListener("pointerleave", (event) => movePointer({ token: -1 }, isTouch(event)));
  // The focus stays where it is, so that arrow keys still mean layer and head after a click.
  container.addEventListener("mousedown", (event) => event.preventDefault());
  container.addEventListener("click", () => {
    if (pressed >= 0 && state.view !== "rollout") choose(pressed);
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", arrange);
  window.addEventListener("hashchange", () => { stateFromText(location.hash); changed(); });
  // An image that is zoomed in is moved by the finger in both directions.
  window.visualViewport?.addEventListener("resize", () => {
    container.classList.toggle("zoomed", window.visualViewport.scale > 1.01);
  });
}
