// The live page: events of /admin/events become texts, tables and plots. Elements are made once, and then only change.

const WIDTH = 600;
const HEIGHT = 100;
const FIGURES = 12;

const all = (selector) => [...document.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);

/** The two last `now` events: rates are the growth between them. */
let now = null;
let before = null;
/** The points: times, and a column for each series. */
let times = [];
let columns = {};
let pointsMax = 0;

// Reading the metrics.

function leaves(value) {
  if (value === undefined || value === null) return [];
  return typeof value === "object" ? Object.values(value).flatMap(leaves) : [value];
}

/** The sum of a metric, of all its labels or of some. Null if the server has none. */
function sum(event, name, ...labels) {
  const metric = event && event.samples[`kalends_${name}`];
  if (metric === undefined || metric === null) return null;
  const values = labels.length ? labels.flatMap((label) => leaves(metric[label])) : leaves(metric);
  return values.reduce((total, value) => total + value, 0);
}

const metric = (name) => (now && now.samples[`kalends_${name}`]) || {};

/** The growth of a counter in a second. */
function rate(name, ...labels) {
  const [last, first] = [sum(now, name, ...labels), sum(before, name, ...labels)];
  if (last === null || first === null || now.at <= before.at) return null;
  return (Math.max(0, last - first) * 1000) / (now.at - before.at);
}

// Writing numbers.

function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${number(unit && value >= 100 ? Math.round(value) : value)} ${units[unit]}`;
}

const milliseconds = (us) => (us >= 1e6 ? `${number(us / 1e6)} s` : `${number(us / 1000)} ms`);

/** A count since the start, with its rate. */
function counted(name, ...labels) {
  const [count, growth] = [sum(now, name, ...labels), rate(name, ...labels)];
  return growth === null ? number(count) : `${number(count)} (${number(growth)}/s)`;
}

const outOf = (name) => {
  const max = sum(now, `${name}_max`);
  return max === null ? number(sum(now, name)) : `${number(sum(now, name))} of ${number(max)}`;
};

function duration(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

/** The upper bound of the band in which the share lies. */
function quantile({ bounds_us: bounds, counts }, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let below = 0;
  const place = counts.findIndex((count) => (below += count) >= total * share && below > 0);
  if (total === 0) return "–";
  return place < bounds.length ? milliseconds(bounds[place]) : `over ${milliseconds(bounds.at(-1))}`;
}

const lastPoint = (series) => columns[series] && columns[series].at(-1);

function month() {
  const date = new Date(now.at);
  const end = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1);
  const name = `${date.getUTCFullYear()}_${String(date.getUTCMonth() + 1).padStart(2, "0")}`;
  return `${name}, ${duration((end - now.at) / 1000)} left`;
}

const MOVING = ["draining_old_month", "copying_chids", "writing_record", "draining_again", "awaiting_deletes", "moving_messages",
  "clearing_old_month"];

const VALUES = {
  open: () => outOf("port_connections"),
  ready: () => number(sum(now, "clients", "ready")),
  moving: () => number(sum(now, "clients", ...MOVING)),
  delivered: () => counted("pushes_total", "delivered"),
  stored: () => counted("pushes_total", "stored"),
  flight: () => number(sum(now, "pushes_in_flight") === null ? null : sum(now, "pushes_in_flight") + sum(now, "pushes_awaiting_ack")),
  p50: () => latency("direct_p50"),
  p99: () => latency("direct_p99"),
  busy: () => counted("push_answers_total", "busy"),
  unavailable: () => counted("push_responses_total", "503"),
  waiting: () => number(sum(now, "waiting_messages")),
  waiting_bytes: () => bytes(sum(now, "waiting_bytes")),
  expired: () => number(sum(now, "messages_expired_total")),
  month,
  moved: () => counted("month_moves_total", "done"),
  resumed: () => number(sum(now, "month_moves_total", "resumed")),
  counted: () =>
    now.months
      ? `Counted at ${clock(now.months.at)}, and every ten minutes while this page is open.`
      : "Counted every ten minutes while this page is open. On DynamoDB: kalends tables status.",
  queue: () => outOf("store_queue"),
  store_p99: () => latency("store_p99"),
  disk: () => bytes(sum(now, "disk_free_bytes")),
  followers: () => number(sum(now, "feed_followers")),
  feeds: () => number(sum(now, "feeds_open")),
  failing: () => number(sum(now, "feeds_failing")),
  lag: () => number(sum(now, "broadcasts_lag")),
  memory: () => bytes(now.samples.process_resident_memory_bytes),
  files: () => number(now.samples.process_open_fds),
  uptime: () => duration(now.at / 1000 - now.samples.process_start_time_seconds),
  archive: () => maintained("backup"),
  drops: () => maintained("drops"),
};

/** When a task of maintenance last succeeded in this process. */
function maintained(task) {
  const last = metric("maintenance_last_timestamp_seconds")[task];
  if (last) return `${duration(Math.max(0, now.at / 1000 - last))} ago`;
  return sum(now, "maintenance_failures_total", task) > 0 ? "failed: see the log" : "not since the start";
}

/** Of the operations in the last interval of points. */
function latency(series) {
  const value = lastPoint(series);
  return value === null || value === undefined ? "–" : `${number(value)} ms`;
}

const rates = (name) => (label) => [label, number(sum(now, name, label)), number(rate(name, label))];

const ROWS = {
  findings: () =>
    now.findings.map(({ check, since_ms: since, found, why, effect, remedy }) => [
      check,
      duration(Math.max(0, now.at - since) / 1000),
      `${why ? `${found}: ${why}` : found}. ${effect} ${remedy}`,
    ]),
  refusals: () =>
    now.refusals.map(({ last_ms: last, count, status, errno, message, method, route, request }) => [
      clock(last),
      number(count),
      `${status}, errno ${errno}`,
      message,
      `${method} ${route || "no such path"}`,
      request,
    ]),
  phases: () => Object.entries(metric("clients")).map(([phase, count]) => [phase, number(count)]),
  outcomes: () => Object.keys(metric("pushes_total")).map(rates("pushes_total")),
  statuses: () => Object.keys(metric("push_responses_total")).map(rates("push_responses_total")),
  bands: () => {
    const { bounds_us: bounds = [], counts = [] } = metric("push_direct_seconds");
    const total = Math.max(1, counts.reduce((sum, count) => sum + count, 0));
    return counts.map((count, place) => [
      place < bounds.length ? `up to ${milliseconds(bounds[place])}` : `over ${milliseconds(bounds.at(-1))}`,
      number(count),
      `${number((100 * count) / total)} %`,
    ]);
  },
  months: () => {
    const { agents = {}, leaving = {} } = now.months || {};
    const names = [...new Set([...Object.keys(agents), ...Object.keys(leaving)])].sort();
    return names.map((name) => [name, number(agents[name] || 0), number(leaving[name] || 0)]);
  },
  operations: () =>
    Object.entries(metric("store_operation_seconds")).flatMap(([by, calls]) =>
      Object.entries(calls)
        .map(([call, times]) => [call, by, leaves(times.counts).reduce((sum, count) => sum + count, 0), times])
        .filter(([, , count]) => count > 0)
        .map(([call, by, count, times]) => [call, by, number(count), quantile(times, 0.99)]),
    ),
  nodes: () =>
    Object.entries(metric("node_breaker")).map(([node, states]) => [
      node,
      (Object.entries(states).find(([, is]) => is === 1) || ["–"])[0].replace("_", " "),
      number(metric("node_pushes_in_flight")[node]),
      number(metric("node_notifications_pending")[node]),
    ]),
  limits: () =>
    Object.entries(metric("limit_refusals_total"))
      .filter(([, count]) => count > 0)
      .map(([limit]) => rates("limit_refusals_total")(limit)),
};

// Writing the page.

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function made(name, parent, properties = {}) {
  const element = document.createElement(name);
  Object.assign(element, properties);
  parent.append(element);
  return element;
}

/** Gives a table these rows, and makes or removes only rows that are too few or too many. */
function fill(table, rows) {
  if (!table.tHead) {
    const head = made("tr", table.createTHead());
    for (const text of table.dataset.head.split("|")) made("th", head, { scope: "col", textContent: text });
    table.createTBody();
  }
  if (table.dataset.none && rows.length === 0) rows = [[table.dataset.none]];
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  for (const [place, texts] of rows.entries()) {
    const row = body.rows[place] || made("tr", body);
    while (row.cells.length < texts.length) {
      if (row.cells.length) made("td", row);
      else made("th", row, { scope: "row" });
    }
    while (row.cells.length > texts.length) row.lastElementChild.remove();
    row.cells[0].colSpan = texts.length > 1 ? 1 : table.tHead.rows[0].cells.length;
    texts.forEach((text, cell) => write(row.cells[cell], text));
  }
}

function show() {
  for (const element of all("[data-value]")) write(element, VALUES[element.dataset.value]());
  for (const table of all("[data-rows]")) fill(table, ROWS[table.dataset.rows]());
  byId("findings").hidden = now.findings.length === 0;
  write(byId("updated"), `Updated ${clock(now.at)}`);
}

// Plots.

const svg = (name, parent) => parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));

/** Makes the elements of a plot: picture, legend, and the figures for those who do not see it. */
function prepare(plot) {
  const figure = made("figure", plot);
  const picture = svg("svg", figure);
  picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  const caption = made("figcaption", figure);
  const series = plot.dataset.series.split("|").map((text, place) => {
    const [name, label] = text.split(":");
    const path = svg("path", picture);
    path.setAttribute("class", `s${place}`);
    return { name, label, path, key: made("span", caption, { className: `key s${place}` }) };
  });
  const scale = made("span", caption, { className: "scale" });
  const details = made("details", plot);
  made("summary", details, { textContent: "Figures of the plot" });
  const table = made("table", details);
  table.dataset.head = ["Time", ...series.map(({ label }) => label)].join("|");
  details.addEventListener("toggle", draw);
  return { plot, picture, series, scale, details, table };
}

const plots = all(".plot").map(prepare);

function line(values, at, from, to, top) {
  let text = "";
  let pen = "M";
  values.forEach((value, place) => {
    if (value === null) return (pen = "M");
    const x = ((at[place] - from) / Math.max(1, to - from)) * WIDTH;
    const y = HEIGHT - 3 - (value / top) * (HEIGHT - 8);
    // A point without neighbours is a short stroke.
    text += pen === "M" ? `M${(x - 2).toFixed(1)} ${y.toFixed(1)}h4` : `L${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  return text;
}

function draw() {
  if (!times.length) return;
  const to = times.at(-1);
  // A young server has a shorter past.
  const from = Math.max(to - byId("range").value * 1000, times[0]);
  const first = times.findIndex((at) => at >= from);
  const at = times.slice(first);
  const measure = (name) => (name === "memory" ? bytes : number);
  for (const { plot, picture, series, scale, details, table } of plots) {
    const read = series.map(({ name }) => (columns[name] || []).slice(first));
    const known = read.flat().filter((value) => value !== null);
    plot.hidden = known.length === 0;
    if (plot.hidden) continue;
    const top = known.reduce((max, value) => Math.max(max, value), 0);
    const text = measure(series[0].name);
    series.forEach(({ label, path, key }, place) => {
      path.setAttribute("d", line(read[place], at, from, to, top || 1));
      write(key, `${label} ${text(read[place].at(-1))}`);
    });
    write(scale, `${clock(from).slice(0, 5)} to ${clock(to).slice(0, 5)}, 0 to ${text(top)}`);
    const states = series.map(({ label }, place) => {
      const values = read[place].filter((value) => value !== null);
      const low = values.reduce((min, value) => Math.min(min, value), Infinity);
      return values.length
        ? `${label}: ${text(values.at(-1))} now, ${text(low)} to ${text(Math.max(...values))}`
        : `${label}: not known`;
    });
    picture.setAttribute("aria-label", `${plot.dataset.name}, ${clock(from)} to ${clock(to)}. ${states.join("; ")}.`);
    if (details.open) {
      const step = Math.max(1, Math.ceil(at.length / FIGURES));
      const places = [...at.keys()].reverse().filter((place, index) => index % step === 0);
      fill(table, places.map((place) => [clock(at[place]), ...read.map((values) => text(values[place]))]));
    }
  }
}

byId("range").addEventListener("change", draw);

// The connection to the server.

const RETRY_MS = 3000;
const SILENCE_MS = 20000;

let source = null;
let silence = 0;
let retry = 0;

function state(text, kind) {
  write(byId("state"), text);
  byId("state").className = kind;
}

/** What `kalends status` says first, and how many user agents are connected. */
function verdict() {
  if (now.samples.kalends_draining) return state("The server is stopping.", "down");
  const outages = now.findings.filter(({ severity }) => severity === "outage");
  if (outages.length) return state("The server is unhealthy.", "down");
  const ready = sum(now, "clients", "ready");
  const agents = ready === null ? "" : ` User agents: ${number(ready)}.`;
  if (!now.findings.length) return state(`Everything works.${agents}`, "up");
  const warnings = now.findings.length === 1 ? "a warning" : `${now.findings.length} warnings`;
  return state(`The server works, with ${warnings}.${agents}`, "warned");
}

function connect() {
  clearTimeout(retry);
  if (source) source.close();
  source = new EventSource("/admin/events");
  source.addEventListener("history", ({ data }) => {
    const { points, points_max: max } = JSON.parse(data);
    [times, columns, pointsMax] = [points.at, points.columns, max];
    before = null;
    now = null;
    draw();
  });
  source.addEventListener("points", ({ data }) => {
    const added = JSON.parse(data);
    times = times.concat(added.at).slice(-pointsMax);
    for (const name of Object.keys(added.columns)) {
      columns[name] = (columns[name] || []).concat(added.columns[name]).slice(-pointsMax);
    }
    draw();
  });
  source.addEventListener("now", ({ data }) => {
    [before, now] = [now, JSON.parse(data)];
    const [version] = Object.keys(metric("build_info"));
    // After an update of the server, this script is that of the version before.
    if (version !== document.documentElement.dataset.version) return location.reload();
    verdict();
    watch();
    show();
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
  state("The server does not answer. Trying again.", "down");
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
