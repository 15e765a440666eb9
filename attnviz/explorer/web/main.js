// Loading what the state asks for, and the start of the page.

let linking = 0;

// The state has changed: controls, link and panels follow.
async function changed() {
  syncControls();
  clearTimeout(linking);
  linking = setTimeout(updateLink, 150);
  await load();
  schedule();
}

// A page inside a notebook cell has no address of its own: nothing there can be linked.
const FRAMED = location.protocol === "about:";

// Not at every step of a slider: browsers refuse more than a few changes a second.
function updateLink() {
  if (!FRAMED) history.replaceState(null, "", `#${stateToText()}`);
}

async function load() {
  const { view, layer } = state;
  const wanted = view === "rollout" ? "The rollout" : `Layer ${layer}`;
  // A later choice may have come first; what has been read then is no longer wanted.
  const isOutdated = () => state.view !== view || (view !== "rollout" && state.layer !== layer);
  try {
    if (view === "rollout") rollout ??= await readRollout();
    else if (data?.layer !== layer) {
      const read = await layerOf(layer);
      if (!isOutdated()) data = read;
    }
    if (!isOutdated()) notice("");
  } catch {
    if (isOutdated()) return;
    notice(`${wanted} cannot be read: its data in this file is damaged. Is the file complete?`);
    write(by("headline"), `${wanted} cannot be read`);
  }
}

// For the browser's console and for tests: numbers as they are shown.
window.attnviz = {
  facts,
  state,
  timing,
  // (heads) arrays of (tokens) numbers.
  attention: async (layer, token) => {
    const rows = attentionOf(await layerOf(layer), token);
    return Array.from({ length: HEADS }, (_, head) => fuseHeads(rows, head));
  },
  rollout: readRollout,
  // What "Save PNG" saves, as a data address.
  figure: () => renderFigure().toDataURL(),
};

if ("DecompressionStream" in window) {
  document.querySelector("main").hidden = false;
  document.querySelector(".actions").hidden = false;
  by("link").hidden = FRAMED;
  buildControls();
  stateFromText(location.hash);
  listen();
  changed();
} else {
  notice("This browser is too old for this page: it cannot unpack its data (DecompressionStream).");
}
