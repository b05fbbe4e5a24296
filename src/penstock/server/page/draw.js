// Plots and the picture of a flow, by hand in SVG; each says in words what it shows.
import { bytes, count, s, seconds } from "./tools.js";

const WIDE = 300;
const HIGH = 96;

// A line over the last micro-batches, with an optional limit that it may not pass.
export function plot(values, { unit, limit = null, label }) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const most = Math.max(limit ?? 0, ...known, 1e-9);
  const picture = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
  const now = known.length ? known[known.length - 1] : null;
  const words = `${label}: ${now === null ? "nothing yet" : `now ${unit(now)}, at most ${unit(Math.max(...known))} in the last ${known.length} micro-batches`}${limit ? `; the limit is ${unit(limit)}` : ""}`;
  picture.setAttribute("aria-label", words);
  picture.append(s("title", {}, words));
  const [left, right, top, bottom] = [2, WIDE - 4, 14, HIGH - 4];
  picture.append(s("line", { class: "axis", x1: left, y1: bottom, x2: right, y2: bottom }));
  const y = (value) => bottom - ((bottom - top) * value) / (most * 1.04);
  const x = (place) => (values.length < 2 ? right : left + ((right - left) * place) / (values.length - 1));
  if (limit) picture.append(s("line", { class: "limit", x1: left, y1: y(limit), x2: right, y2: y(limit) }));
  const points = values.map((value, place) => (value === null || value === undefined ? null : [x(place), y(value)])).filter(Boolean);
  if (points.length === 1) picture.append(s("circle", { class: "bar", cx: points[0][0], cy: points[0][1], r: 3 }));
  if (points.length > 1) {
    const line = points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join(" L");
    picture.append(s("path", { class: "area", d: `M${points[0][0].toFixed(1)} ${bottom} L${line} L${points[points.length - 1][0].toFixed(1)} ${bottom} Z` }));
    picture.append(s("path", { class: "line", d: `M${line}` }));
  }
  picture.append(s("text", { class: "faint", x: left, y: 11 }, limit ? `limit ${unit(limit)}` : `at most ${unit(most < 1e-8 ? 0 : most)}`));
  return picture;
}

// Predicted beside measured, as two bars.
export function compare(predicted, measured, unit, label) {
  const most = Math.max(predicted ?? 0, measured ?? 0, 1e-9);
  const words = `${label}: predicted ${unit(predicted)}, measured ${unit(measured)}`;
  const picture = s("svg", { viewBox: `0 0 ${WIDE} 56`, role: "img", "aria-label": words }, s("title", {}, words));
  [["predicted", predicted], ["measured", measured]].forEach(([name, value], row) => {
    const top = 4 + row * 26;
    picture.append(
      s("text", { class: "faint", x: 2, y: top + 14 }, name),
      s("rect", { class: "track", x: 70, y: top, width: 160, height: 18, rx: 4 }),
      s("rect", { class: `bar ${name}`, x: 70, y: top, width: (160 * (value ?? 0)) / most, height: 18, rx: 4 }),
      s("text", { x: 238, y: top + 14 }, unit(value)),
    );
  });
  return picture;
}

// How much of a limit is used.
export function gauge(value, limit, words) {
  const part = limit ? Math.max(0, Math.min(1, (value ?? 0) / limit)) : 0;
  return s(
    "svg", { viewBox: `0 0 ${WIDE} 22`, role: "img", "aria-label": words },
    s("title", {}, words),
    s("rect", { class: "track", x: 2, y: 3, width: WIDE - 6, height: 14, rx: 4 }),
    s("rect", { class: "bar", x: 2, y: 3, width: (WIDE - 6) * part, height: 14, rx: 4 }),
  );
}

// Sources, slots with their part of the memory, results, and what left otherwise.
export function flow(group) {
  const shown = Math.min(group.slots ?? 1, 4);
  const rows = Math.max(shown, group.sources.length, 2);
  const high = 22 + rows * 46;
  const middle = high / 2;
  const moving = group.state === "running" && lately(group) > 0;
  const words = `Rows flow from ${group.sources.join(" and ") || "the sources"} through ${group.slots} ${group.slots === 1 ? "slot" : "slots"}: ${count(group.rows_in)} in, ${count(group.rows_waiting)} waiting, ${count(group.rows_out)} results`;
  const picture = s("svg", { viewBox: `0 0 760 ${high}`, role: "img", "aria-label": words }, s("title", {}, words));
  const spread = (count_, place) => middle + (place - (count_ - 1) / 2) * 46;
  const pipe = (x1, y1, x2, y2, on) => {
    const bend = (x1 + x2) / 2;
    picture.append(
      s("path", { class: on ? "pipe moving" : "pipe", d: `M${x1} ${y1} C${bend} ${y1} ${bend} ${y2} ${x2 - 7} ${y2}` }),
      s("path", { class: "head", d: `M${x2 - 8} ${y2 - 4} L${x2} ${y2} L${x2 - 8} ${y2 + 4} Z` }),
    );
  };
  const box = (kind, x, y, width, name, more) => {
    picture.append(s("rect", { class: `box ${kind}`, x, y: y - 19, width, height: 38, rx: 7 }));
    picture.append(s("text", { x: x + width / 2, y: more ? y - 2 : y + 4, "text-anchor": "middle" }, short(name, width / 7)));
    if (more) picture.append(s("text", { class: "faint", x: x + width / 2, y: y + 13, "text-anchor": "middle" }, short(more, width / 6.3)));
  };
  const filled = group.memory.budget_bytes ? (group.memory.held_bytes ?? 0) / group.memory.budget_bytes : 0;
  const slots = Array.from({ length: shown }, (_, place) => spread(shown, place));
  slots.forEach((y) => pipe(310, middle, 370, y, moving));
  slots.forEach((y) => pipe(530, y, 600, middle - 23, moving && group.rows_out > 0));
  const left = (group.rows_shed ?? 0) + (group.rows_evicted ?? 0) + (group.rows_late ?? 0) + (group.rows_set_aside ?? 0);
  pipe(530, slots[shown - 1], 600, middle + 23, false);
  group.sources.forEach((name, place) => {
    const y = spread(group.sources.length, place);
    pipe(140, y, 200, middle, moving);
    box("source", 4, y, 136, name);
  });
  box("source", 200, middle, 110, known(group.rows_in) ? `${count(group.rows_in)} rows` : "no rows yet", "packed by slot");
  slots.forEach((y, place) => {
    const last = place === shown - 1 && group.slots > shown;
    picture.append(s("rect", { class: "box slot", x: 370, y: y - 19, width: 160, height: 38, rx: 7 }));
    picture.append(s("rect", { class: "held", x: 372, y: y + 11, width: Math.max(0, Math.min(1, filled)) * 156, height: 6, rx: 2 }));
    picture.append(s("text", { x: 450, y: y + 1, "text-anchor": "middle" }, last ? `… ${group.slots} slots in all` : `kernel of slot ${place}`));
  });
  box("sink", 600, middle - 23, 156, `${count(group.rows_out ?? 0)} results`, besideResults(group));
  box(left > 0 ? "aside" : "source", 600, middle + 23, 156, `${count(left)} rows left aside`, "not among the results");
  return picture;
}

function besideResults(group) {
  if (known(group.recall)) return `recall ${(100 * group.recall).toFixed(0)}%`;
  return known(group.rows_waiting) ? `${count(group.rows_waiting)} rows wait` : "so far";
}

const known = (value) => value !== null && value !== undefined;

function lately(group) {
  return group.history.slice(-3).reduce((sum, batch) => sum + (batch.rows_in ?? 0), 0);
}

function short(text, most) {
  return text.length > most ? `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…` : text;
}

export const rates = (group) => group.history.map((batch) => (batch.seconds ? (batch.rows_in ?? 0) / batch.seconds : null));
export { bytes, count, seconds };
