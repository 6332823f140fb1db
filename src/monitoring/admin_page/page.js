// The live page: events of /admin/events become texts, tables and figures. Elements are made once, and then only change.

const all = (selector) => [...document.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);

/** The last `now` event. */
let now = null;
/** The points of an hour, a day, a week and 31 days, the starts of the server, and the places of the series. */
let rings = [];
let starts = [];
let names = [];

// Reading the metrics.

function leaves(value) {
  if (value === undefined || value === null) return [];
  return typeof value === "object" ? Object.values(value).flatMap(leaves) : [value];
}

const metric = (name) => now.samples[`kalends_${name}`] ?? {};

/** The sum of a metric, of all its labels or of some. Null if the server has none. */
function sum(name, ...labels) {
  const found = now.samples[`kalends_${name}`];
  if (found === undefined || found === null) return null;
  return (labels.length ? labels.flatMap((label) => leaves(found[label])) : leaves(found)).reduce((total, value) => total + value, 0);
}

// Writing numbers.

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${number(unit && value >= 100 ? Math.round(value) : value)} ${units[unit]}`;
}

const milliseconds = (us) => (us >= 1e6 ? `${number(us / 1e6)} s` : `${number(us / 1000)} ms`);

function duration(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return days > 9 ? `${days} days` : `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

const since = (ms) => duration(Math.max(0, now.at - ms) / 1000);
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
/** The name of a setting keeps its letters. */
const sentence = (text) => (/^\w*_/.test(text) ? text : text[0].toUpperCase() + text.slice(1));
/** A sentence that others may have a part of: their backticks are no code. */
const quoted = (text) => sentence(text).replaceAll("`", "'");
const count = (value, thing) => `${number(value)} ${thing}${value === 1 ? "" : "s"}`;

/** The upper bound of the band in which the share lies. */
function quantile({ bounds_us: bounds, counts }, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let below = 0;
  const place = counts.findIndex((count) => (below += count) >= total * share && below > 0);
  if (total === 0) return "–";
  return place < bounds.length ? milliseconds(bounds[place]) : `over ${milliseconds(bounds.at(-1))}`;
}

const month = () => new Date(now.at).toISOString().slice(0, 7).replace("-", "_");
const some = (name) => Object.entries(metric(name)).filter(([, value]) => value > 0);
const known = (rows) => rows.filter(([, value]) => value !== null).map(([text, value]) => [text, number(value)]);

/** When a task of maintenance last succeeded in this process. */
function maintained(task) {
  const last = metric("maintenance_last_timestamp_seconds")[task];
  if (last) return `${since(last * 1000)} ago`;
  return sum("maintenance_failures_total", task) > 0 ? "failed: see the log" : "not since the start";
}

const backups = () => [
  ["last backup that is known", now.backup_ms ? `${since(now.backup_ms)} ago` : "none"],
  ["archive of backup_dir", maintained("backup")],
];

const DRAINS = "drains, then stops";
const STATES = { answers: "serves", drains: DRAINS, unknown: "unknown" };
const isSilent = ({ state }) => state.unreachable !== undefined;
const isThis = ({ state }) => state === "this_server";

function nodeState(row) {
  if (isSilent(row)) return `does not answer: ${row.state.unreachable}`;
  if (isThis(row)) return now.samples.kalends_draining ? DRAINS : "serves";
  // It cannot be asked.
  if (row.called_s_ago !== null) return `calls, last ${duration(row.called_s_ago)} ago`;
  return STATES[row.state];
}

function difference(seconds) {
  if (!seconds) return seconds === 0 ? "right" : "";
  const whole = Math.abs(seconds) > 600 ? Math.round(Math.abs(seconds) / 60) * 60 : Math.abs(seconds);
  return `${duration(whole)} ${seconds > 0 ? "ahead" : "behind"}`;
}

const ROWS = {
  nodes: () =>
    now.nodes.map((row) => [
      isThis(row) ? `${row.node} (this page)` : row.node,
      nodeState(row),
      row.role ?? "",
      agentsAt(row) === null ? "" : number(agentsAt(row)),
      difference(row.clock_ahead_s),
      row.version ?? "",
    ]),
  agents: () =>
    now.listed.map(({ begin, is_connected: isConnected, last_push: push }) => [
      begin,
      isConnected === null ? "on another node" : isConnected ? "connected" : "not connected here",
      push ? `${since(push.at_ms)} ago` : "none of late",
      push?.outcome ?? "",
    ]),
  refusals: () =>
    now.refusals.map(({ last_ms: last, count, status, errno, message, method, route, request }) => [
      clock(last),
      number(count),
      errno ? `${status}, errno ${errno}` : `${status}`,
      message,
      `${method} ${route || "no such path"}`,
      request,
    ]),
  outcomes: () => some("pushes_total").map(([name, value]) => [name.replaceAll("_", " "), number(value)]),
  statuses: () => some("push_responses_total").map(([name, value]) => [name, number(value)]),
  waiting: () => [
    ["waiting, counted each minute", number(sum("waiting_messages"))],
    ["their size", bytes(sum("waiting_bytes"))],
    ["expired since the start", number(sum("messages_expired_total"))],
  ],
  months: () => {
    const { agents = {}, leaving = {} } = now.months ?? {};
    const names = [...new Set([...Object.keys(agents), ...Object.keys(leaving)])].sort();
    return names.map((name) => [name, number(agents[name] ?? 0), number(leaving[name] ?? 0)]);
  },
  limits: () => some("limit_refusals_total").map(([name, value]) => [name, number(value)]),
  feeds: () =>
    known([
      ["followers", sum("feed_followers")],
      ["open feeds", sum("feeds_open")],
      ["failing feeds", sum("feeds_failing")],
      ["broadcasts behind", sum("broadcasts_lag")],
    ]),
  upkeep: () => [
    ...(now.keeps_backups ? backups() : []),
    ["drops of what is old", maintained("drops")],
  ],
  operations: () =>
    Object.entries(metric("store_operation_seconds")).flatMap(([by, calls]) =>
      Object.entries(calls)
        .map(([call, times]) => [call, by, times.counts.reduce((sum, count) => sum + count, 0), times])
        .filter(([, , count]) => count > 0)
        .map(([call, by, count, times]) => [call.replaceAll("_", " "), by, number(count), quantile(times, 0.99)]),
    ),
};

/** Whether a fold has something to show. */
const USED = {
  pushes: () => ROWS.outcomes().length + ROWS.statuses().length > 0,
  waiting: () => sum("waiting_messages") > 0 || sum("messages_expired_total") > 0,
  month: () => ROWS.months().some(([name, , leaving]) => name !== month() || leaving !== "0"),
  limits: () => ROWS.limits().length > 0,
  feeds: () => ["feed_followers", "feeds_failing", "broadcasts_lag"].some((name) => sum(name) > 0),
  upkeep: () => now.backup_ms !== null || some("maintenance_failures_total").length > 0 || maintained("drops").endsWith("ago"),
  store: () => ROWS.operations().length > 0,
};

// Writing the page.

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Writes a text of the program, in which code is between backticks. What others wrote has no code. */
function writeCode(element, text) {
  if (element.textContent === text.replaceAll("`", "")) return;
  const code = (textContent) => Object.assign(document.createElement("code"), { textContent });
  element.replaceChildren(...text.split("`").map((part, place) => (place % 2 ? code(part) : part)));
}

function made(name, parent, properties = {}) {
  const element = document.createElement(name);
  Object.assign(element, properties);
  parent.append(element);
  return element;
}

/** The advice of a finding on this page, which has the nodes. */
function advice({ remedy }) {
  return remedy.replace("`kalends nodes`", "The table of nodes below");
}

/** In the time zone of the browser, with the day if it is another one. */
function began(ms) {
  if (ms === now.started_ms) return `At least since the start (${since(ms)})`;
  const [at, today] = [new Date(ms), new Date(now.at)];
  const day = at.toDateString() === today.toDateString() ? "" : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, `;
  return `Since ${day}${clock(ms).slice(0, 5)} (${since(ms)})`;
}

/** Gives a table these rows, and makes or removes only rows that are too few or too many. */
function fill(table, rows) {
  const heads = table.dataset.head.split("|");
  if (!table.tHead) {
    const head = made("tr", table.createTHead());
    for (const text of heads) made("th", head, { scope: "col", textContent: text });
    table.createTBody();
  }
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  for (const [place, texts] of rows.entries()) {
    const row = body.rows[place] ?? made("tr", body);
    while (row.cells.length < texts.length) {
      if (row.cells.length) made("td", row).dataset.label = heads[row.cells.length - 1];
      else made("th", row, { scope: "row" });
    }
    texts.forEach((text, cell) => write(row.cells[cell], text));
  }
}

/** Since when, what is wrong, and what to do. */
function fillFindings() {
  const list = byId("findings").lastElementChild;
  while (list.children.length > now.findings.length) list.lastElementChild.remove();
  for (const [place, finding] of now.findings.entries()) {
    const item = list.children[place] ?? made("li", list);
    if (!item.children.length) ["span", "strong", "span"].forEach((name) => made(name, item));
    const { severity, since_ms: at, found, why, effect } = finding;
    item.className = severity;
    const [time, what, toDo] = item.children;
    write(time, `${began(at)}: `);
    write(what, `${why ? `${found}: ${why}` : found}.`);
    writeCode(toDo, ` ${effect} ${advice(finding)}`);
  }
}

/** A button in each row puts its user agent into the search, and sends that. */
function fillAgents() {
  const rows = all("[data-rows=agents]")[0].tBodies[0].rows;
  for (const [place, { begin }] of now.listed.entries()) {
    const button = rows[place].cells[4]?.firstElementChild ?? made("button", made("td", rows[place]), { textContent: "Inspect" });
    button.ariaLabel = `Inspect ${begin}`;
    button.onclick = () => {
      const { form } = Object.assign(byId("target"), { value: begin });
      form.requestSubmit();
    };
  }
}

/** Bars against their limits. */
function fillResources() {
  const body = byId("resources").tBodies[0];
  while (body.rows.length > now.resources.length) body.lastElementChild.remove();
  for (const [place, { name, used, limit, is_bytes: isBytes, setting, words, severity }] of now.resources.entries()) {
    const row = body.rows[place] ?? made("tr", body);
    if (!row.cells.length) {
      const head = made("th", row, { scope: "row" });
      const cell = made("td", row);
      for (const parent of [head, cell]) made("span", parent);
      made("div", head, { className: "quiet" });
      made("i", made("div", cell, { role: "meter", ariaValueMin: "0", ariaValueMax: "100" }));
    }
    const text = isBytes ? bytes : number;
    const [head, cell] = row.cells;
    write(head.firstElementChild, name);
    write(head.lastElementChild, setting);
    write(cell.firstElementChild, words ?? `${text(used)} of ${text(limit)}`);
    const part = limit ? Math.min(100, Math.round((100 * used) / limit)) : 100;
    const bar = cell.lastElementChild;
    Object.assign(bar, { ariaLabel: `${name}, percent of its limit`, ariaValueNow: String(part) });
    bar.className = severity ?? (!words && part >= 90 ? "warning" : "");
    bar.firstElementChild.style.width = `${part}%`;
    bar.firstElementChild.hidden = !used;
  }
}

function identity() {
  const parts = [`Kalends ${now.build}`, `up ${since(now.started_ms)}`];
  const ends = now.certificate_expires_ms;
  if (ends) parts.push(ends > now.at ? `certificate ${count(Math.floor((ends - now.at) / 864e5), "day")}` : "certificate ended");
  if (now.keeps_backups) parts.push(now.backup_ms ? `last backup ${since(now.backup_ms)} ago` : "no backup yet");
  return parts.join(" · ");
}

/** Whether no user agent was ever here, as far as is known. */
function isNew() {
  const seen = rings.some(({ columns }) => columns[names.indexOf("agents")]?.some((value) => value > 0));
  return now.agents === 0 && !seen && !sum("pushes_total") && !sum("waiting_messages");
}

/** Of this node they are those of this moment, as in its figure. */
const agentsAt = (row) => (isThis(row) ? now.agents : row.agents);
const agentsOf = (rows) => rows.reduce((total, row) => total + agentsAt(row), 0);

/** Which part of a cluster does not answer, and what that does to people. */
function silentNodes() {
  const silent = now.nodes.filter(isSilent);
  const [does, whose] = silent.length === 1 ? ["does", "its"] : ["do", "their"];
  const agents = agentsOf(silent);
  const reconnect = agents === 1 ? "1 user agent reconnects" : `${agents ? `${number(agents)} ` : ""}user agents reconnect`;
  const isThere = now.nodes.some((row) => row.role === "connection" && !isSilent(row));
  const where = isThere ? "elsewhere" : "later";
  return `${count(silent.length, "node")} ${does} not answer; ${whose} ${reconnect} ${where}; until then pushes are stored, and those with TTL 0 dropped.`;
}

/** One sentence, and how good it is. */
function verdict() {
  if (now.samples.kalends_draining) return ["The server drains, and stops then.", "warned"];
  const outages = now.findings.filter(({ severity }) => severity === "outage");
  const [first] = outages;
  if (first?.check === "certificate") return [`${first.effect} ${advice(first)}`, "bad"];
  if (first) return [`${quoted(first.found)}. ${first.effect}`, "bad"];
  if (now.nodes.some(isSilent) && now.findings.every(({ check }) => check === "nodes")) return [silentNodes(), "warned"];
  const [only] = now.findings;
  if (now.findings.length === 1) {
    const first = only.check === "certificate_ends" ? advice(only) : "The server works, with a warning.";
    return [`${first} ${quoted(only.found)}.`, "warned"];
  }
  if (now.findings.length) return [`The server works, with ${now.findings.length} warnings.`, "warned"];
  if (isNew()) return ["Everything works. No user agent has connected yet.", "good"];
  const parts = now.nodes.length ? [count(now.nodes.length, "node")] : [];
  const agents = now.nodes.length ? agentsOf(now.nodes) : now.agents;
  if (agents !== null) parts.push(`${count(agents, "user agent")} connected`);
  if (now.last_push_ms) parts.push(`last push ${since(now.last_push_ms)} ago`);
  return [parts.length ? `Everything works. ${sentence(parts.join(", "))}.` : "Everything works.", "good"];
}

function say([text, kind]) {
  writeCode(byId("verdict"), text);
  byId("verdict").className = kind;
}

function state(text, kind) {
  write(byId("state"), text);
  byId("state").className = kind;
}

function show() {
  say(verdict());
  state(`updated ${clock(now.at)}`, "up");
  write(byId("identity"), identity());
  byId("findings").hidden = !now.findings.length;
  byId("agents").hidden = !now.listed.length;
  byId("refusals").hidden = !now.refusals.length;
  byId("nodes").hidden = !now.nodes.length;
  write(byId("lacking"), now.nodes_lacking.map((clause) => `${sentence(clause)}.`).join(" "));
  byId("first").hidden = !isNew() || now.findings.some(({ severity }) => severity === "outage");
  if (/^https?:/.test(now.origin)) byId("public").href = now.origin;
  write(byId("counted"), now.months ? `Counted ${since(now.months.at)} ago.` : "Not counted since the start.");
  fillFindings();
  fillResources();
  for (const table of all("table[data-rows]")) fill(table, ROWS[table.dataset.rows]());
  fillAgents();
  for (const [place, row] of [...(all("[data-rows=nodes]")[0].tBodies[0]?.rows ?? [])].entries()) {
    const node = now.nodes[place];
    row.className = isSilent(node) || nodeState(node) === DRAINS ? "bad" : "";
  }
  for (const fold of all("details[data-used]")) {
    const fault = now.findings.some(({ check }) => fold.dataset.checks?.split(" ").includes(check));
    fold.hidden = !fault && !USED[fold.dataset.used]();
    // Once for each fault: an operator may close it.
    if (fault && !fold.dataset.fault) fold.open = true;
    fold.dataset.fault = fault ? "yes" : "";
  }
}

// Figures.

/** The time that each range shows, and between its ticks, in milliseconds. */
const SPANS = [36e5, 864e5, 7 * 864e5, 31 * 864e5];
const STEPS = [9e5, 216e5, 864e5, 7 * 864e5];
const [LEFT, RIGHT, TOP, BOTTOM] = [40, 10, 18, 22];

const svg = (name, parent, kind = "") => {
  const element = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
  element.setAttribute("class", kind);
  return element;
};

/** Makes the elements of a figure. The left and right keys move along it. */
function prepare(plot) {
  const { name, unit, series } = plot.dataset;
  const figure = made("figure", plot);
  const caption = made("figcaption", figure);
  const title = made("strong", caption, { textContent: unit ? `${name}, ${unit}` : name });
  const time = made("span", caption, { className: "quiet" });
  const keys = made("span", caption, { className: "keys" });
  const picture = svg("svg", figure);
  picture.setAttribute("aria-hidden", "true");
  const [grid, mark] = ["grid", "mark"].map((kind) => svg("path", picture, kind));
  const lines = series.split("|").map((text, place) => {
    const [name, label] = text.split(":");
    return { name, label, path: svg("path", picture, `s${place}`), key: made("span", keys, { className: `key s${place}` }) };
  });
  const drawn = { plot, title, picture, grid, mark, lines, time, cursor: svg("path", picture, "cursor"), texts: svg("g", picture), at: null };
  Object.assign(plot, { tabIndex: 0, role: "slider", ariaLabel: `${name}${unit ? ` in ${unit}` : ""}`, ariaValueMin: "0" });
  plot.addEventListener("keydown", (event) => {
    const { at } = rings[range()] ?? { at: [] };
    const place = drawn.at ?? at.length - 1;
    const next = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: at.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    point(drawn, Math.max(0, Math.min(at.length - 1, next)));
  });
  picture.addEventListener("pointermove", (event) => {
    const { at } = rings[range()] ?? { at: [] };
    const wanted = drawn.from + ((event.offsetX - LEFT) / drawn.width) * (drawn.to - drawn.from);
    const far = (place) => Math.abs(at[place] - wanted);
    point(drawn, [...at.keys()].reduce((best, place) => (far(place) < far(best) ? place : best), 0));
  });
  picture.addEventListener("pointerleave", () => point(drawn, null));
  plot.addEventListener("blur", () => point(drawn, null));
  return drawn;
}

const range = () => Number(byId("range").value);
const figures = all(".plot").map(prepare);

/** Writes the values of a point, the last one without a place. */
function point(figure, place) {
  const ring = rings[range()];
  figure.at = place;
  if (!ring?.at.length) return;
  const shown = place ?? ring.at.length - 1;
  const unit = figure.plot.dataset.unit ? ` ${figure.plot.dataset.unit}` : "";
  const isNow = place === null && now && figure.lines[0].name === "agents";
  const values = figure.lines.map(({ name, label, key }) => {
    const value = isNow ? now.agents : (ring.columns[names.indexOf(name)]?.[shown] ?? null);
    const shownValue = name === "agents" && value !== null ? Math.round(value) : value;
    const text = `${label} ${number(shownValue)}${value === null ? "" : unit}`;
    write(key, text);
    return text;
  });
  const time = new Date(isNow ? now.at : ring.at[shown]).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  write(figure.time, time);
  const x = LEFT + ((ring.at[shown] - figure.from) / (figure.to - figure.from)) * figure.width;
  figure.cursor.setAttribute("d", place === null ? "" : `M${x.toFixed(1)} ${TOP}V${figure.bottom}`);
  Object.assign(figure.plot, { ariaValueMax: String(ring.at.length - 1), ariaValueNow: String(shown), ariaValueText: `${time}: ${values.join(", ")}` });
}

/** The smallest of 2, 4, 10, 20, 40 and so on that is as large. */
function roundTop(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(2, value)));
  return [1, 2, 4, 10].map((times) => times * unit).find((top) => top >= Math.max(2, value));
}

/** The times in a range that are whole in the time zone of the browser. */
function ticks(from, to) {
  const [step, zone] = [STEPS[range()], new Date(to).getTimezoneOffset() * 6e4];
  const first = Math.ceil((from - zone) / step) * step + zone;
  return Array.from({ length: Math.floor((to - first) / step) + 1 }, (_, place) => first + place * step);
}

function tickText(ms) {
  const date = new Date(ms);
  if (range() < 2) return clock(ms).slice(0, 5);
  return date.toLocaleDateString("en-GB", range() === 2 ? { weekday: "short" } : { day: "numeric", month: "short" });
}

/** The beginnings of months in UTC, by which messages are stored. */
function turns(from, to) {
  const date = new Date(from);
  const turn = (months) => Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months);
  return [1, 2].map(turn).filter((at) => at <= to);
}

/** The path of a line. While the server did not run there is none. */
function line(ring, values, x, y, from) {
  let text = "";
  let last = null;
  values.forEach((value, place) => {
    const at = ring.at[place];
    if (value === null || at < from) return (last = null);
    const position = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    // A point without neighbours is a dot.
    text += last === null || at - last > 2.5 * ring.every_ms ? `M${position}h.1` : `L${position}`;
    last = at;
  });
  return text;
}

/** The path of bars from the values below to these, as wide as the period that a point ends. None is too low to be seen. */
function bars(ring, values, below, x, y, from) {
  return values.map((value, place) => {
    const [at, bottom] = [ring.at[place], y(below[place] ?? 0)];
    if (at < from || !(value > (below[place] ?? 0))) return "";
    const [left, right] = [x(Math.max(from, at - ring.every_ms, ring.at[place - 1] ?? 0)), x(at)];
    return `M${left.toFixed(1)} ${bottom.toFixed(1)}V${Math.min(y(value), bottom - 1.5).toFixed(1)}H${right.toFixed(1)}V${bottom.toFixed(1)}Z`;
  }).join("");
}

/** Each column above the sum of those before. */
function stacked(columns) {
  let below = [];
  return columns.map((column) => (below = column.map((value, place) => (value === null ? null : value + (below[place] ?? 0)))));
}

function label(figure, used, x, y, anchor, text) {
  const element = figure.texts.children[used] ?? svg("text", figure.texts);
  for (const [name, value] of Object.entries({ x, y, "text-anchor": anchor })) element.setAttribute(name, value);
  write(element, text);
  return used + 1;
}

function drawOne(figure, ring) {
  const [width, height] = [figure.plot.clientWidth, 176];
  const to = Math.max(ring.at.at(-1) ?? 0, now?.at ?? 0);
  const from = to - SPANS[range()];
  const bottom = height - BOTTOM;
  Object.assign(figure, { from, to, bottom, width: width - LEFT - RIGHT });
  figure.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const isStacked = "stacked" in figure.plot.dataset;
  const values = figure.lines.map(({ name }) => ring.columns[names.indexOf(name)] ?? []);
  const columns = isStacked ? stacked(values) : values;
  const top = roundTop(columns.flat().reduce((max, value, place) => Math.max(max, value ?? 0), 0));
  const x = (at) => LEFT + ((at - from) / (to - from)) * figure.width;
  const y = (value) => bottom - (value / top) * (bottom - TOP);
  const shape = (column, place) => (isStacked ? bars(ring, column, columns[place - 1] ?? [], x, y, from) : line(ring, column, x, y, from));
  figure.lines.forEach(({ path }, place) => path.setAttribute("d", shape(columns[place], place)));
  let used = 0;
  let grid = "";
  for (const value of [0, top / 2, top]) {
    grid += `M${LEFT} ${y(value)}h${figure.width}`;
    used = label(figure, used, LEFT - 5, y(value) + 4, "end", value.toLocaleString("en", { notation: "compact" }));
  }
  for (const at of ticks(from, to)) {
    grid += `M${x(at).toFixed(1)} ${bottom}v4`;
    const anchor = x(at) > width - 20 ? "end" : "middle";
    used = label(figure, used, x(at), height - 5, anchor, tickText(at));
  }
  let marks = "";
  let free = 0;
  const named = [...starts.filter((at) => at > from).map((at) => [at, "start"]), ...turns(from, to).map((at) => [at, "new month"])];
  for (const [at, name] of named.sort(([one], [other]) => one - other)) {
    marks += `M${x(at).toFixed(1)} ${TOP}V${bottom}`;
    const isLast = x(at) > width - 60;
    const begins = isLast ? x(at) - 60 : x(at);
    if (begins < free) continue;
    free = begins + 62;
    used = label(figure, used, x(at) + (isLast ? -3 : 3), TOP - 6, isLast ? "end" : "start", name);
  }
  while (figure.texts.children.length > used) figure.texts.lastElementChild.remove();
  figure.grid.setAttribute("d", grid);
  figure.mark.setAttribute("d", marks);
  point(figure, figure.at === null ? null : Math.min(figure.at, ring.at.length - 1));
}

function draw() {
  const ring = rings[range()];
  if (!ring) return;
  for (const figure of figures) {
    const isOfAgents = figure.lines[0].name === "agents";
    figure.plot.hidden = now !== null && now.role === (isOfAgents ? "endpoint" : "connection");
    if (isOfAgents && now?.role === "connection") {
      figure.plot.ariaLabel = "User agents connected to this node";
      write(figure.title, figure.plot.ariaLabel);
    }
    if (!figure.plot.hidden) drawOne(figure, ring);
  }
}

/** Takes points over, in place of that of the present period. */
function add(written) {
  rings = written.rings.map((added, place) => {
    const { at, columns, ended } = rings[place] ?? { at: [], columns: [], ended: 0 };
    const oldest = added.at.at(-1) - SPANS[place] - added.every_ms;
    const first = Math.max(0, at.findIndex((time) => time >= oldest));
    const joined = (before = [], after) => [...before.slice(first, ended), ...after];
    return {
      every_ms: added.every_ms,
      at: joined(at, added.at),
      columns: added.columns.map((column, series) => joined(columns[series], column)),
      ended: Math.max(0, ended - first) + added.ended,
    };
  });
  [starts, names] = [written.starts, written.names];
  draw();
}

byId("range").addEventListener("change", () => {
  for (const figure of figures) figure.at = null;
  draw();
});
new ResizeObserver(draw).observe(figures[0].plot.parentElement);

// The connection to the server.

const RETRY_MS = 3000;
const SILENCE_MS = 20000;

let source = null;
let silence = 0;
let retry = 0;

function connect() {
  clearTimeout(retry);
  if (source) source.close();
  source = new EventSource("/admin/events");
  source.addEventListener("history", ({ data }) => {
    rings = [];
    add(JSON.parse(data));
  });
  source.addEventListener("points", ({ data }) => add(JSON.parse(data)));
  source.addEventListener("now", ({ data }) => {
    now = JSON.parse(data);
    // After an update of the server, this script is that of the build before.
    if (now.build !== document.documentElement.dataset.build) return location.reload();
    watch();
    show();
    draw();
  });
  source.addEventListener("error", lost);
  watch();
}

/** A connection that was lost without an end is silent. */
function watch() {
  clearTimeout(silence);
  silence = setTimeout(lost, SILENCE_MS);
}

async function lost() {
  clearTimeout(silence);
  source.close();
  say(["The server does not answer this page. Trying again.", "bad"]);
  state("no answer", "down");
  clearTimeout(retry);
  retry = setTimeout(async () => {
    try {
      const { status } = await fetch("/admin", { cache: "no-store" });
      if (status === 401) return location.reload();
      if (status === 200) return connect();
    } catch {
      // It is still gone.
    }
    lost();
  }, RETRY_MS);
}

connect();
