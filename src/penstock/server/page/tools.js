// Elements without markup from data: text is only ever set as text. Numbers and sizes as people write them.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

export function set(element, text) {
  const said = text === null || text === undefined ? "" : String(text);
  if (element.textContent !== said) element.textContent = said;
}

// Children by key: kept where they are the same, so that focus and scroll stay.
export function keyed(parent, items, key, make, update) {
  const known = (parent.known ??= new Map());
  const wanted = new Set(items.map(key));
  for (const [one, entry] of known) {
    if (!wanted.has(one)) {
      entry.element.remove();
      known.delete(one);
    }
  }
  items.forEach((item, place) => {
    const one = key(item);
    if (!known.has(one)) known.set(one, make(item));
    const entry = known.get(one);
    if (parent.children[place] !== entry.element) parent.insertBefore(entry.element, parent.children[place] ?? null);
    update(entry, item);
  });
}

export function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  for (const [step, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (size >= step) {
      const shown = value / (unit === " k" ? 1e3 : step);
      return `${shown.toPrecision(3).replace(/\.0+$/, "")}${unit}`;
    }
  }
  return size >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toPrecision(2);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [step, unit] of [[2 ** 30, "GB"], [2 ** 20, "MB"], [2 ** 10, "KB"]]) {
    if (value >= step) return `${(value / step).toPrecision(3).replace(/\.0+$/, "")} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0995) return `${(value * 1000).toPrecision(2)} ms`;
  if (value < 120) return `${value.toPrecision(value < 10 ? 2 : 3)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

export const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(value > 0.995 && value < 1 ? 2 : 0)}%`);
