// What the pages share: the data in the file, text, colours, and controls.

const facts = JSON.parse(document.getElementById("facts").textContent);
const record = JSON.parse(document.getElementById("record").textContent);

// The bytes of a block: base64 of a zlib stream, whose checksum the browser verifies.
async function inflate(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The colour map as 256 times red, green, blue.
function colourTable(name) {
  const text = atob(facts.cmaps[name]);
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

const by = (id) => document.getElementById(id);
const grouped = (number) => number.toLocaleString("en");

// Four significant digits; powers of ten only for very small numbers, and none below the page's
// accuracy.
function decimal(value, digits = 4) {
  if (value === 0) return "0";
  if (value < 1e-9) return "<\u00a01e-9";
  return value >= 1e-4 ? value.toPrecision(digits) : value.toExponential(digits - 2);
}

function percent(value) {
  const number = 100 * value;
  if (number > 0 && number < 0.1) return "<\u00a00.1\u00a0%";
  // Near 100 % the tenths count again: there a uniform row differs from a nearly uniform one.
  return `${number.toFixed(number >= 9.95 && number < 99.5 ? 0 : 1)}\u00a0%`;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function element(kind, className, parent) {
  const node = document.createElement(kind);
  if (className) node.className = className;
  if (parent) parent.append(node);
  return node;
}

const LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

function word(red, green, blue, alpha) {
  return LITTLE_ENDIAN
    ? ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0
    : ((red << 24) | (green << 16) | (blue << 8) | alpha) >>> 0;
}

let overlay = { key: "", words: new Uint32Array(256) };

// 256 colours with their opacity, which is weighted as in the figures.
function overlayWords(cmap, opacity) {
  const key = `${cmap} ${opacity}`;
  if (overlay.key !== key) {
    const table = colourTable(cmap);
    const words = new Uint32Array(256);
    for (let i = 0; i < 256; i++) {
      const alpha = Math.round(facts.overlay.weights[i] * opacity * 2.55);
      words[i] = word(table[3 * i], table[3 * i + 1], table[3 * i + 2], alpha);
    }
    overlay = { key, words };
  }
  return overlay.words;
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
    input.addEventListener("change", () => { choose(value); announce(); });
    // After a click, arrow keys are to mean layer and head again, not the next choice.
    input.addEventListener("click", (event) => { if (event.detail) input.blur(); });
  }
}

function select(id, value) {
  for (const input of by(id).querySelectorAll("input")) input.checked = input.value === String(value);
}

function slide(id, value, text) {
  by(id).value = value;
  by(id).setAttribute("aria-valuetext", text);
  write(by(`${id}-shown`), text);
}

function paintBar() {
  const context = by("bar").getContext("2d");
  const pixels = context.createImageData(256, 1);
  const table = colourTable(state.cmap);
  for (let i = 0; i < 256; i++) pixels.data.set([...table.subarray(3 * i, 3 * i + 3), 255], 4 * i);
  context.putImageData(pixels, 0, 0);
}

// A message above the page; while it stands, panels are grey, since they show something else.
function notice(text) {
  write(by("notice"), text);
  by("notice").hidden = !text;
  container.classList.toggle("stale", Boolean(text));
}

async function copyLink() {
  const address = location.href.replace(/#.*$/, "") + `#${stateToText()}`;
  try {
    await navigator.clipboard.writeText(address);
    write(by("link"), "Copied");
    setTimeout(() => write(by("link"), "Copy link"), 1500);
  } catch {
    // Without permission to use the clipboard, the link is still in the address bar.
    write(by("link"), "In the address bar");
    setTimeout(() => write(by("link"), "Copy link"), 2500);
  }
}
