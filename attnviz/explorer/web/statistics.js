// The statistics of the row that is shown.

// What each number is, by its name.
const DEFINITIONS = {
  "Entropy": "of the row over all tokens, in nats, and its share of ln N, the entropy of a uniform row",
  "Focus": "the highest value divided by the mean over patches",
  "Highest": "the highest value of any patch",
  "Prefix tokens": "attention to tokens that have no position in the image",
  "Kept": "the fewest highest cells that reach the mass kept, and the mass that they hold; others are dimmed",
  "Pointer": "the value of the cell under the pointer",
};
const numbers = {};
const highest = [];

// Made once and filled on every move: a hover must not build elements.
function buildStatistics() {
  for (const [name, definition] of Object.entries(DEFINITIONS)) {
    if (name === "Prefix tokens" && !PREFIX) continue;
    const kind = name === "Pointer" ? "pointer" : "";
    const term = element("dt", kind, by("numbers"));
    term.textContent = name;
    term.title = definition;
    numbers[name] = element("dd", kind, by("numbers"));
    element("dt", "", by("definitions")).textContent = name;
    element("dd", "", by("definitions")).textContent = definition;
  }
  for (let i = 0; i < Math.min(5, CELLS); i++) {
    const item = element("li", "", by("highest"));
    const button = element("button", "cell", item);
    button.type = "button";
    button.title = "make this patch the query";
    const entry = { token: 0, name: element("span", "", button), value: element("span", "", button) };
    button.addEventListener("click", () => hold(entry.token));
    highest.push(entry);
  }
}

// The statistics of one panel: {row, range, mask, entropy, name}; mask is null where all is kept,
// entropy where the values are not a distribution.
function showStatistics({ row, range, mask, entropy, name }, pointerToken) {
  write(by("numbers-of"), name);
  by("numbers-of").hidden = !name;
  const share = TOKENS > 1 ? entropy / Math.log(TOKENS) : 1;
  write(numbers.Entropy, entropy === null ? "none: a maximum is not a distribution"
    : `${entropy.toFixed(2)} nats, ${percent(share)} of ln N`);
  write(numbers.Focus, range.sum > 0 ? `${decimal((range.high * CELLS) / range.sum)} × mean` : "0");
  write(numbers.Highest, decimal(range.high));
  if (PREFIX) {
    const parts = facts.prefix.map((prefix, token) => `${prefix}\u00a0${percent(row[token])}`);
    write(numbers["Prefix tokens"], parts.join(", "));
  }
  write(numbers.Kept, mask
    ? `${grouped(mask.count)} of ${grouped(CELLS)} cells hold ${percent(mask.mass)}`
    : `all ${grouped(CELLS)} cells`);
  write(numbers.Pointer, pointerToken >= 0
    ? `${tokenName(pointerToken)}: ${decimal(row[pointerToken])}` : "outside the image");
  highestPatches(row, highest.length).forEach(([token, value], i) => {
    highest[i].token = token;
    write(highest[i].name, tokenName(token));
    write(highest[i].value, decimal(value));
  });
}
