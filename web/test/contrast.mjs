// Runs inside the page: the texts whose contrast against what lies behind them is below 4.5 : 1 (WCAG AA). Texts that a filter
// has dimmed on purpose, and those of colours that a gradient paints over, are left out.
export function contrast_failures() {
  const rgba = (text) => {
    const numbers = text.match(/[\d.]+/g).map(Number);
    return numbers.length === 3 ? [...numbers, 1] : numbers;
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = ([r, g, b]) => {
    const part = (value) => ((value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const failures = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest('.hidden-text, .dim, [aria-hidden=true], noscript, title')) continue;
    if (!element.checkVisibility()) continue;
    const layers = [];
    let opacity = 1;
    for (let up = element; up; up = up.parentElement) {
      const style = getComputedStyle(up);
      opacity *= Number(style.opacity);
      const colour = rgba(style.backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    const behind = layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
    const colour = rgba(getComputedStyle(element).color);
    colour[3] *= opacity;
    const front = over(colour, behind);
    const [high, low] = [luminance(front), luminance(behind)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) failures.push(`${ratio.toFixed(2)} ${walker.currentNode.textContent.trim().slice(0, 40)} (${element.className})`);
  }
  return failures;
}
