// The view as a PNG file, and the link to it.

const MAX_SIDE = 8192;

// All visible panels on one canvas, each at the image's own size, with their captions, the colour bar
// and a foot that says what is shown.
function renderFigure() {
  const shown = visiblePanels();
  const positions = shown.map((_, i) => positionOf(i));
  const down = 1 + Math.max(...positions.map(([row]) => row));
  const across = 1 + Math.max(...positions.map(([, column]) => column));
  const { width, height } = facts.picture;
  const scale = Math.min(Math.max(1, 480 / width), MAX_SIDE / (across * width), MAX_SIDE / (down * height));
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  const text = Math.max(13, Math.round(Math.max(wide, 0.7 * high) / 28));
  const gap = text, line = Math.round(1.5 * text);
  const below = shown.length > 1 ? 2 * line + gap : gap;
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  canvas.width = Math.max(across * (wide + gap) + gap, 24 * text);
  const font = `${text}px system-ui, sans-serif`;
  context.font = font;
  const foot = footLines(context, canvas.width - 2 * gap);
  canvas.height = gap + down * (high + below) + line * (foot.length + 1) + gap;
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.font = font; // setting the size has reset it
  context.textBaseline = "middle";
  shown.forEach((panel, i) => {
    const [row, column] = positions[i];
    const x = gap + column * (wide + gap);
    const y = gap + row * (high + below);
    context.imageSmoothingEnabled = true;
    context.drawImage(panel.image, x, y, wide, high);
    context.imageSmoothingEnabled = false;
    context.drawImage(panel.canvas, x, y, wide, high);
    for (const marker of panel.markers) if (!marker.hidden) drawMarker(context, marker, x, y, wide, high, text);
    if (shown.length === 1) return; // the foot says what a caption would
    context.fillStyle = "#1a1a1a";
    context.fillText(panel.name.textContent, x, y + high + 0.8 * line, wide);
    context.fillStyle = "#5f5f5f";
    context.fillText(panel.summary.textContent, x, y + high + 1.8 * line, wide);
  });
  let y = canvas.height - gap - line * (foot.length + 0.5);
  drawBar(context, gap, y, text);
  for (const words of foot) {
    y += line;
    context.fillText(words, gap, y);
  }
  return canvas;
}

function drawMarker(context, marker, x, y, wide, high, text) {
  const share = (name) => parseFloat(marker.style[name]) / 100;
  const box = [x + share("left") * wide, y + share("top") * high, share("width") * wide, share("height") * high];
  for (const [colour, width] of [["#000000", 4], ["#ffffff", 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(...box);
  }
  if (!marker.textContent) return;
  context.textAlign = "center";
  context.lineWidth = 3;
  context.strokeStyle = "#000000";
  context.fillStyle = "#ffffff";
  const middle = [box[0] + box[2] / 2, box[1] + box[3] / 2];
  context.font = `600 ${Math.round(0.8 * text)}px system-ui, sans-serif`;
  context.strokeText(marker.textContent, ...middle);
  context.fillText(marker.textContent, ...middle);
  context.font = `${text}px system-ui, sans-serif`;
  context.textAlign = "left";
}

// The colour bar between the words of the legend, with the tick of the uniform row.
function drawBar(context, x, y, text) {
  const words = (id) => by(id).textContent;
  const start = x + context.measureText(words("low")).width + 0.6 * text;
  const wide = 10 * text;
  context.fillStyle = "#5f5f5f";
  context.fillText(words("low"), x, y);
  context.imageSmoothingEnabled = true;
  context.drawImage(by("bar"), start, y - 0.35 * text, wide, 0.7 * text);
  const separator = words("scale-words").startsWith("of ") ? " " : " · ";
  context.fillText(`${words("high")}${separator}${words("scale-words")}`, start + wide + 0.6 * text, y);
  if (by("uniform").hidden) return;
  const at = start + (parseFloat(by("uniform").style.left) / 100) * wide;
  for (const [colour, width] of [["#ffffff", 4], ["#1a1a1a", 2]]) {
    context.fillStyle = colour;
    context.fillRect(at - width / 2, y - 0.6 * text, width, 1.2 * text);
  }
  context.fillStyle = "#5f5f5f";
}

// What is shown, as lines no wider than ``wide``.
function footLines(context, wide) {
  const parts = [
    facts.name,
    `${facts.model}${facts.random ? " (random weights)" : ""}`,
    by("headline").textContent,
    `${state.cmap}, opacity ${state.opacity}\u00a0%`,
  ];
  if (state.kept < 100) parts.push(`${state.kept}\u00a0% of the mass kept, other cells dimmed`);
  const lines = [];
  for (const part of parts) {
    const joined = lines.length ? `${lines[lines.length - 1]} · ${part}` : part;
    if (lines.length && context.measureText(joined).width <= wide) lines[lines.length - 1] = joined;
    else lines.push(part);
  }
  return lines.map((words) => shorten(context, words, wide));
}

function shorten(context, words, wide) {
  let shown = words;
  while (shown.length > 1 && context.measureText(shown).width > wide) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

function save() {
  renderFigure().toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    const stem = facts.name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_.-]+/gu, "_");
    link.download = `${stem || "image"}.attention.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }, "image/png");
}
