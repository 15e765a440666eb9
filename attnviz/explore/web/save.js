// The view as a PNG file, and the link to it.

const LARGEST = 8192;

// All shown panels on one canvas, each at the picture's own size, with their captions and a foot.
function drawn() {
  const shown = pool.filter((panel) => !panel.figure.hidden);
  const across = Math.min(shown.length, getComputedStyle(container).gridTemplateColumns.split(" ").length);
  const down = Math.ceil(shown.length / across);
  const { width, height } = facts.picture;
  const scale = Math.min(Math.max(1, 480 / width), LARGEST / (across * width), LARGEST / (down * height));
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  const text = Math.max(13, Math.round(wide / 28));
  const gap = text, line = Math.round(1.9 * text);
  const canvas = document.createElement("canvas");
  canvas.width = across * (wide + gap) + gap;
  canvas.height = down * (high + line) + gap + line;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.font = `${text}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  shown.forEach((panel, number) => {
    const x = gap + (number % across) * (wide + gap);
    const y = gap + Math.floor(number / across) * (high + line);
    context.imageSmoothingEnabled = true;
    context.drawImage(panel.image, x, y, wide, high);
    context.imageSmoothingEnabled = false;
    context.drawImage(panel.canvas, x, y, wide, high);
    for (const marker of panel.markers) {
      if (marker.hidden) continue;
      const part = (name) => parseFloat(marker.style[name]) / 100;
      const box = [x + part("left") * wide, y + part("top") * high, part("width") * wide, part("height") * high];
      context.lineWidth = 4;
      context.strokeStyle = "#000000";
      context.strokeRect(...box);
      context.lineWidth = 2;
      context.strokeStyle = "#ffffff";
      context.strokeRect(...box);
    }
    context.fillStyle = "#1a1a1a";
    context.fillText(panel.caption.textContent, x, y + high + line / 2, wide);
  });
  context.fillStyle = "#5f5f5f";
  const foot = `${facts.name} · ${facts.model}${facts.random ? " (random weights)" : ""} · ${by("headline").textContent} · ` +
    `${by("low").textContent} to ${by("high").textContent}`;
  context.fillText(foot, gap, canvas.height - line / 2, canvas.width - 2 * gap);
  return canvas;
}

function save() {
  drawn().toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${facts.name.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "_") || "picture"}.attention.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }, "image/png");
}

async function copyLink() {
  const address = location.href.replace(/#.*$/, "") + `#${stateToText()}`;
  try {
    await navigator.clipboard.writeText(address);
    write(by("link"), "Copied");
    setTimeout(() => write(by("link"), "Copy link"), 1500);
  } catch {
    // Without leave to use the clipboard the link is in the address bar all the same.
    write(by("link"), "In the address bar");
    setTimeout(() => write(by("link"), "Copy link"), 2500);
  }
}
