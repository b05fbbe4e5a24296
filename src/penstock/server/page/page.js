// What the page does: asks the server every second while somebody looks, and shows what it says.
import { compare, flow, gauge, plot, rates } from "./draw.js";
import * as server from "./server.js";
import { bytes, count, h, keyed, seconds, set, share } from "./tools.js";

const EVERY = 1000;
const FEW = 8;
const SHOWN = 50;
const $ = (id) => document.getElementById(id);
let timer = null;
let asking = false;
let latest = [];
let answered = null;

// ---------------------------------------------------------------- the token

$("door-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  set($("door-fault"), "");
  server.token.set($("token").value.trim());
  try {
    await server.queries();
    $("token").value = "";
    await enter();
  } catch (fault) {
    server.token.forget();
    set($("door-fault"), fault.message);
    $("token").focus();
  }
});

$("leave").addEventListener("click", () => {
  server.token.forget();
  leave();
});

function leave(why = "") {
  clearTimeout(timer);
  timer = null;
  $("board").hidden = $("actions").hidden = true;
  $("door").hidden = false;
  set($("door-fault"), why);
  connected("not connected", "");
  $("token").focus();
}

async function enter() {
  $("door").hidden = true;
  $("board").hidden = $("actions").hidden = false;
  await look();
  await server.catalogue().then(showCatalogue, () => {});
}

// ---------------------------------------------------------------- asking

async function look() {
  clearTimeout(timer);
  timer = null;
  if (asking || !server.token.get()) return;
  asking = true;
  try {
    const [progress, queries] = await Promise.all([server.progress(), server.queries()]);
    if (!server.token.get()) return; // forgotten meanwhile
    show(progress, Array.isArray(queries) ? queries : queries.queries);
    connected(`live, up ${seconds(progress.uptime_seconds)}`, "live");
    $("board").classList.remove("old");
    answered = new Date();
  } catch (fault) {
    if (fault.status === 401) {
      server.token.forget();
      leave("The server does not know this token.");
      return;
    }
    // Of a server that is away the browser says no more than that; one that answers says why it cannot.
    const since = answered ? ` since ${answered.toLocaleTimeString()}; what is shown is from then` : "";
    connected(fault.status ? `no answer: ${fault.message}` : `no answer${since}`, "lost");
    $("board").classList.add("old");
  } finally {
    asking = false;
  }
  if (server.token.get() && !document.hidden) timer = setTimeout(look, EVERY);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !$("board").hidden) look();
});

function connected(text, kind) {
  set($("link"), text);
  $("link").className = `link ${kind}`;
}

// ---------------------------------------------------------------- showing

function show(progress, queries) {
  const groups = [...progress.groups].sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true }));
  tiles(progress, groups, queries);
  $("no-queries").hidden = queries.length > 0;
  latest = queries;
  showQueries();
  keyed($("groups"), groups, (group) => group.id, makeGroup, showGroup);
  $("views-section").hidden = progress.views.length === 0;
  keyed($("views"), progress.views, (one) => one.name, makeView, showView);
}

// Many queries: those that are looked for, and of these not more than a page can hold.
function showQueries() {
  const letters = $("find").value.trim().toLowerCase();
  const fits = (query) => !letters || [query.name, query.sql ?? "", query.state].some((one) => one.toLowerCase().includes(letters));
  const found = latest.filter(fits);
  $("finder").hidden = latest.length <= FEW;
  set($("found"), found.length > SHOWN ? `the first ${SHOWN} of ${count(found.length)}` : letters ? `${count(found.length)} of ${count(latest.length)}` : "");
  keyed($("queries"), found.slice(0, SHOWN), (query) => query.name, makeQuery, showQuery);
}

$("find").addEventListener("input", showQueries);

const sum = (groups, name) => groups.reduce((all, group) => all + (group[name] ?? 0), 0);

function tiles(progress, groups, queries) {
  const running = queries.filter((query) => query.state === "running").length;
  const worst = Math.max(0, ...groups.map((group) => group.response_seconds?.worst ?? 0));
  const memory = progress.memory;
  const rate = groups.filter((group) => group.state === "running").reduce((all, group) => all + (group.rows_per_second ?? 0), 0);
  const recalls = groups.map((group) => group.recall).filter((one) => one !== null && one !== undefined);
  const backlog = (name) => groups.reduce((all, group) => all + (group.backlog?.[name] ?? 0), 0);
  const said = [
    ["queries", `${count(running)} of ${count(queries.length)}`, "running"],
    ["rate", `${count(rate)}`, "rows a second, lately"],
    ["backlog", count(backlog("files") || backlog("rows")), backlog("files") ? "files to read" : "rows wait"],
    ["memory", bytes(memory.held_bytes), `of ${bytes(memory.budget_bytes)}`],
    ["shed or evicted", count(sum(groups, "rows_shed") + sum(groups, "rows_evicted")), recalls.length ? `least recall ${share(Math.min(...recalls))}` : "rows"],
    ["slowest answer", worst ? seconds(worst) : "–", "lately"],
  ];
  const make = ([name]) => {
    const value = h("dd");
    const more = h("dd", { class: "more" });
    return { element: h("div", { class: "tile" }, h("dt", {}, name), value, more), value, more };
  };
  keyed($("tiles"), said, ([name]) => name, make, (tile, [, value, more]) => {
    set(tile.value, value);
    set(tile.more, more);
  });
}

function stateOf(element, state) {
  set(element, state);
  element.className = `state ${state}`;
}

function facts(element, said) {
  const make = ([name]) => {
    const value = h("dd");
    return { element: h("div", {}, h("dt", {}, name), value), value };
  };
  const known = said.filter(([, value]) => value !== null && value !== undefined);
  keyed(element, known, ([name]) => name, make, (fact, [, value]) => set(fact.value, value));
}

function faultText(error) {
  return error ? [`${error.kind}: ${error.what}`, error.why, error.do].filter(Boolean).join("\n") : "";
}

// ---------------------------------------------------------------- queries

function makeQuery(query) {
  const name = query.name;
  const entry = { state: h("span"), facts: h("dl", { class: "facts" }), fault: h("p", { class: "fault" }) };
  entry.toggle = h("button", { type: "button", onclick: () => act(entry, entry.paused ? server.resume : server.pause) }, "Pause");
  entry.rows = h("button", { type: "button", "aria-label": `Results of ${name}`, onclick: () => read(name, entry.kind) }, "Results");
  entry.removing = h("button", { type: "button", "aria-label": `Remove ${name}`, onclick: () => askToRemove(name) }, "Remove");
  entry.name = name;
  entry.text = h("pre", {}, query.sql ?? "");
  entry.element = h(
    "article", { class: "query", "data-query": name, "aria-label": `Query ${name}` },
    h("div", {}, h("div", { class: "heading" }, h("h3", {}, name), entry.state), entry.text),
    h("div", { class: "acts" }, entry.rows, entry.toggle, entry.removing),
    entry.facts,
    entry.fault,
  );
  return entry;
}

function showQuery(entry, query) {
  entry.paused = query.state === "paused";
  entry.kind = query.kind;
  stateOf(entry.state, query.state);
  set(entry.toggle, entry.paused ? "Resume" : "Pause");
  entry.toggle.setAttribute("aria-label", `${entry.paused ? "Resume" : "Pause"} ${query.name}`);
  set(entry.fault, faultText(query.error) || (query.sink_error ? `Its sink: ${faultText(query.sink_error)}` : ""));
  entry.removing.hidden = query.from_file;
  entry.text.hidden = !query.sql;
  const time = query.response_seconds;
  // Of a query that shares its join, its own; else that of its group.
  const own = query.response?.results ? query.response : null;
  const told = own ? [own.seconds_mean, own.seconds_max] : time ? [time.median, time.worst] : null;
  facts(entry.facts, [
    ["answered by", `${query.operator}, group ${query.group}`],
    ["results", query.rows_since_start === null ? null : `${count(query.rows_since_start)} since the start`],
    ["response time", told ? `${seconds(told[0])}, at worst ${seconds(told[1])}` : null],
    ["work for a result", own ? `${count(own.work_mean)} units, 95 in 100 within ${count(own.work_p95)}` : null],
  ]);
}

async function act(entry, what) {
  entry.toggle.disabled = true;
  try {
    await what(entry.name);
  } catch (fault) {
    set(entry.fault, fault.message);
  }
  entry.toggle.disabled = false;
  look();
}

// ---------------------------------------------------------------- groups

function panel(title) {
  const value = h("span");
  const place = h("div");
  return { element: h("div", { class: "panel" }, h("h4", {}, title, value), place), value, place };
}

function makeGroup(group) {
  const entry = {
    state: h("span"), about: h("p", { class: "dim" }), flow: h("div", { class: "flowing", tabindex: 0, role: "group", "aria-label": `How rows flow through group ${group.id}` }), facts: h("dl", { class: "facts" }),
    fault: h("p", { class: "fault" }), notes: h("ul", { class: "notes" }), members: h("p", { class: "dim" }),
    rate: panel("rows a second"), memory: panel("memory"), time: panel("seconds of a micro-batch"), predicted: panel("step: predicted and measured"),
  };
  entry.panels = h("div", { class: "panels" }, entry.rate.element, entry.memory.element, entry.time.element, entry.predicted.element);
  entry.element = h(
    "article", { class: "group", "data-group": group.id, "aria-label": `Group ${group.id}` },
    h("div", { class: "heading" }, h("h3", {}, `${group.operator}, group ${group.id}`), entry.state),
    entry.about, entry.members, entry.fault, entry.flow, entry.facts, entry.panels, entry.notes,
  );
  return entry;
}

function showGroup(entry, group) {
  stateOf(entry.state, group.state);
  set(entry.about, group.describes);
  const names = group.queries;
  set(entry.members, `answers ${names.slice(0, 6).join(", ")}${names.length > 6 ? ` and ${count(names.length - 6)} more` : ""}`);
  set(entry.fault, faultText(group.error));
  // What has not changed is not drawn again, so that it can be read and selected.
  const version = JSON.stringify([group.batches, group.state, group.rows_in, group.rows_out, group.backlog, group.notes]);
  if (entry.version === version) return;
  entry.version = version;
  entry.flow.replaceChildren(flow(group));
  const time = group.response_seconds;
  facts(entry.facts, [
    ["micro-batches", count(group.batches)],
    // Of the drawing a phone shows the left half, until it is moved.
    ["results", group.rows_out === null ? null : count(group.rows_out)],
    ["backlog", group.backlog?.files ? `${count(group.backlog.files)} files` : group.backlog?.rows === null ? null : `${count(group.backlog.rows)} rows wait`],
    ["shed", group.rows_shed === null ? null : count(group.rows_shed)],
    ["evicted", group.rows_evicted === null ? null : count(group.rows_evicted)],
    ["recall", group.recall === null ? null : share(group.recall)],
    ["late", group.rows_late === null ? null : count(group.rows_late)],
    ["set aside", count(group.rows_set_aside)],
    ["response time", time ? `${seconds(time.median)}, at worst ${seconds(time.worst)}` : null],
    ["messages", group.messages === null ? null : count(group.messages)],
    ["messages a change", group.messages && group.rows_in ? count(group.messages / group.rows_in) : null],
    ["cells", group.cells === null ? null : count(group.cells)],
  ]);
  const history = group.history;
  entry.panels.hidden = history.length === 0;
  draw(entry.rate, `${count(rates(group).at(-1))} now`, plot(rates(group), { unit: count, label: "Rows a second" }));
  const held = history.map((batch) => batch.memory);
  const budget = group.memory.budget_bytes;
  entry.memory.element.hidden = held.every((one) => one === null || one === undefined);
  draw(entry.memory, `${bytes(group.memory.held_bytes)} of ${bytes(budget)}`, plot(held, { unit: bytes, limit: budget, label: "Memory" }));
  draw(entry.time, `${seconds(time?.last)} now`, plot(history.map((batch) => batch.seconds), { unit: seconds, label: "Seconds of a micro-batch" }));
  const predicted = group.predicted?.step_seconds;
  entry.predicted.element.hidden = predicted === undefined;
  if (predicted !== undefined) {
    draw(entry.predicted, "", compare(predicted, group.measured?.step_seconds, seconds, "Seconds of a step"));
  }
  entry.notes.replaceChildren(...group.notes.map((note) => h("li", {}, note)));
}

function draw(where, value, picture) {
  set(where.value, value);
  where.place.replaceChildren(picture);
}

// ---------------------------------------------------------------- views, streams and tables

function makeView(view) {
  const entry = { facts: h("dl", { class: "facts" }), promise: h("p", { class: "dim" }), cost: panel("seconds to bring in what waits") };
  entry.element = h(
    "article", { class: "view", "data-view": view.name, "aria-label": `View ${view.name}` },
    h("h3", {}, view.name), entry.promise, entry.facts, h("div", { class: "panels" }, entry.cost.element),
  );
  return entry;
}

function showView(entry, view) {
  const each = (numbers) => Object.entries(numbers ?? {}).map(([name, value]) => `${name} ${count(value)}`).join(", ") || null;
  set(entry.promise, view.promise);
  entry.promise.className = view.promise_kept === false ? "fault" : "dim";
  facts(entry.facts, [
    ["version", count(view.version)],
    ["changes that wait", each(view.waiting)],
    ["changes a second", each(view.rates)],
    ["refreshes", each(view.refreshes)],
    ["reads in time", `${count(view.reads_in_time)} of ${count(view.reads)}`],
    ["slowest read", view.reads ? seconds(view.slowest_read) : null],
    ["set aside", each(view.set_aside)],
  ]);
  const words = `${seconds(view.pending_cost)} of ${seconds(view.bound)}`;
  draw(entry.cost, words, gauge(view.pending_cost, view.bound, `Seconds to bring in what waits: ${words}`));
}

function showCatalogue(said) {
  const line = (one, kind) => [
    h("dt", {}, `${one.name} `, h("span", { class: "dim" }, kind)),
    h("dd", {}, one.columns.map((column) => `${column.name} ${column.type}`).join(", ")),
  ];
  const parts = [...said.streams.flatMap((one) => line(one, "stream")), ...said.tables.flatMap((one) => line(one, "table"))];
  $("catalogue").replaceChildren(...(parts.length ? parts : [h("dd", {}, "None are known to this server.")]));
}

// ---------------------------------------------------------------- registering and removing

$("add").addEventListener("click", () => {
  set($("adding-fault"), "");
  $("explained").hidden = true;
  $("adding").showModal();
  $("name").focus();
});
$("adding-cancel").addEventListener("click", () => $("adding").close());

$("adding-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  await withFault(async () => {
    await server.register($("name").value.trim(), $("text").value);
    $("adding").close();
    $("adding-form").reset();
    look();
  });
});

$("explain").addEventListener("click", () =>
  withFault(async () => {
    const said = await server.explain($("text").value);
    const mates = said.shares_with?.length ? `Shares with ${said.shares_with.join(", ")}.` : "Shares with no other query.";
    set($("explained"), `${mates}\n\n${said.explanation}`);
    $("explained").hidden = false;
  }),
);

async function withFault(what) {
  set($("adding-fault"), "");
  try {
    await what();
  } catch (fault) {
    set($("adding-fault"), fault.message);
    pointAt(fault.said);
  }
}

// Put the cursor where the text is wrong.
function pointAt(said) {
  if (!said?.line || !said?.column) return;
  const lines = $("text").value.split("\n");
  const place = lines.slice(0, said.line - 1).reduce((all, line) => all + line.length + 1, 0) + said.column - 1;
  $("text").focus();
  const word = /^[\w.]+/.exec($("text").value.slice(place));
  $("text").setSelectionRange(place, place + (word?.[0].length ?? 1));
}

function askToRemove(name) {
  set($("asking-text"), `${name} and its results will be gone. Other queries of its group are not touched.`);
  $("asking").returnValue = "no";
  $("asking").showModal();
  $("asking").onclose = async () => {
    if ($("asking").returnValue !== "yes") return;
    try {
      await server.remove(name);
    } catch (fault) {
      connected(fault.message, "lost");
    }
    await look();
    $("queries-title").scrollIntoView({ block: "nearest" });
  };
}

// ---------------------------------------------------------------- results

$("reading-close").addEventListener("click", () => $("reading").close());

async function read(name, kind) {
  set($("reading-title"), `Results of ${name}`);
  $("reading-rows").replaceChildren(h("p", { class: "dim" }, "Asking …"));
  if (!$("reading").open) $("reading").showModal();
  try {
    const said = await (kind === "view" ? server.view(name) : server.results(name));
    $("reading-rows").replaceChildren(table(said.rows, kind === "view" ? "What the view shows now" : said.more ? `The first ${count(said.rows.length)} that are kept; there are more` : "All that are kept"));
  } catch (fault) {
    $("reading-rows").replaceChildren(h("p", { class: "fault" }, fault.message));
  }
}

function table(rows, what) {
  if (!rows.length) return h("p", { class: "dim" }, "No rows yet.");
  const names = Object.keys(rows[0]);
  return h(
    "table", {},
    h("caption", { class: "dim" }, what),
    h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...names.map((name) => h("td", {}, row[name] === null ? "NULL" : String(row[name])))))),
  );
}

// An address with #token=… brings the token along. What stands behind # is never sent; it goes from the address at once.
const brought = new URLSearchParams(location.hash.slice(1)).get("token");
if (brought) {
  server.token.set(brought);
  history.replaceState(null, "", location.pathname);
}
if (server.token.get()) enter();
else leave();
