// Small helpers.  All text goes in as text: names come from recipes, rosters and other machines.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function made(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function html(tag, attributes = {}, ...children) {
  return made(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return made(document.createElementNS(SVG, tag), attributes, children);
}

// Only what has changed is touched: nobody's selection is lost, and no screen reader is disturbed.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const percent = (value) => `${(100 * value).toFixed(1)}\u00a0%`;

export function amount(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toPrecision(3)} ${units[unit]}`;
}

export function seconds(value) {
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value < 100) return `${value.toPrecision(3)} s`;
  if (value < 5400) return `${(value / 60).toPrecision(3)} min`;
  return `${(value / 3600).toPrecision(3)} h`;
}
