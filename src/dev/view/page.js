"use strict";
// Plays recordings of scripts: the same traces that `kalends dev replay --json` prints. Texts are never read as HTML.

const byId = (id) => document.getElementById(id);
const recordings = JSON.parse(byId("recordings").textContent);
let recording, steps, at;

/** An element with a class, attributes and children. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const none = (text) => make("p", { class: "none" }, text);
const nameOf = ({ file }) => file.split("/").pop();

/** A span as scripts write it, in its two largest units. */
function span(ms) {
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000], ["ms", 1]];
  const parts = [];
  for (const [unit, length] of units) {
    const count = Math.floor(ms / length);
    ms -= count * length;
    if (count) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

const offset = (ms) => (ms < 0 ? `−${span(-ms)}` : `+${span(ms)}`);

/** An input that was impossible is shown as a step of its own. */
function stepsOf({ steps, failed }) {
  const last = steps[steps.length - 1];
  if (!failed || (last && last.line === failed.line)) return steps;
  const before = last || { at_ms: 0, machines: [] };
  return [...steps, { ...before, line: failed.line, event: failed.event, effects: [], expected: undefined, report: failed.report }];
}

function choose(index) {
  recording = recordings[index];
  steps = stepsOf(recording);
  byId("script").value = index;
  byId("title").textContent = recording.title;
  byId("file").textContent = recording.file + (recording.start ? `, from ${recording.start}` : "");
  byId("events").replaceChildren(...steps.map((step, number) => {
    const button = make("button", { type: "button", class: step.expected || step.report ? "wrong" : "" }, step.event);
    button.addEventListener("click", () => show(number));
    return make("li", {}, button);
  }));
  drawMachines();
}

/** A diagram for each machine that the script has at any time. */
function drawMachines() {
  const machines = new Map(steps.flatMap((step) => step.machines).map((machine) => [machine.name, machine.kind]));
  byId("machines").replaceChildren(...[...machines].map(([name, kind]) => {
    const svg = byId(`diagram-${kind}`).content.firstElementChild.cloneNode(true);
    svg.setAttribute("aria-label", `Phases of ${name}`);
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Diagram of ${name}` }, svg);
    return make("figure", { "data-machine": name }, make("figcaption"), scroll);
  }));
}

/** Scrolls a diagram that is wider than the window. */
function bringIntoView(node, scroll) {
  const [lit, frame] = [node.getBoundingClientRect(), scroll.getBoundingClientRect()];
  scroll.scrollLeft += lit.left + lit.width / 2 - frame.left - frame.width / 2;
}

function lightPhases(step, before) {
  for (const figure of byId("machines").children) {
    const name = figure.dataset.machine;
    const phase = step.machines.find((machine) => machine.name === name)?.phase;
    const from = before.machines.find((machine) => machine.name === name)?.phase;
    const state = make("strong", {}, phase || "not started");
    figure.firstElementChild.replaceChildren(`${name}: `, state, from && phase && from !== phase ? ` (from ${from})` : "");
    for (const node of figure.querySelectorAll(".phase")) {
      if (node.dataset.phase !== phase) node.removeAttribute("aria-current");
      else {
        node.setAttribute("aria-current", "true");
        bringIntoView(node, figure.lastElementChild);
      }
    }
    for (const edge of figure.querySelectorAll(".edge"))
      edge.classList.toggle("taken", edge.dataset.from === from && edge.dataset.to === phase);
  }
}

/** Lines, from the first different one on marked as missing or unexpected. */
function lines(label, texts, agreed, mark) {
  const items = texts.map((text, number) =>
    number < agreed ? make("li", {}, text) : make("li", { class: "wrong", "data-mark": mark }, text));
  return make("ol", { class: "lines", "aria-label": label }, ...items);
}

function showEffects({ event, effects, expected, report }) {
  byId("event").textContent = event;
  const to = byId("effects");
  if (report) {
    to.replaceChildren(make("p", { class: "report" }, report));
  } else if (!expected) {
    to.replaceChildren(effects.length ? lines("Effects", effects, effects.length) : none("No effect."));
  } else {
    // Which frames are equal, in any order of their fields, is decided by the replay: its report lists what differs.
    const differing = recording.failed.report.split("\n").filter((line) => /^\s*(\d+ -|\+) /.test(line));
    const count = (sign) => differing.filter((line) => line.replace(/^\s*\d*\s*/, "").startsWith(`${sign} `)).length;
    const columns = [["Expected", expected, count("-"), "−"], ["Real", effects, count("+"), "+"]].map(([label, texts, wrong, mark]) =>
      make("div", {}, make("h4", {}, label), texts.length ? lines(label, texts, texts.length - wrong, mark) : none("Nothing.")));
    to.replaceChildren(make("p", { class: "report" }, `Line ${recording.failed.line} of the script has other effects.`),
      make("div", { class: "both" }, ...columns));
  }
}

function showUnacked({ machines, at_ms }) {
  const several = machines.length > 1;
  const rows = machines.flatMap(({ name, unacked = [] }) => unacked.map(({ message, channel, sent_at_ms: sent }) => {
    const state = sent === undefined ? make("td", { class: "late" }, "overdue") : make("td", {}, `sent ${span(at_ms - sent)} ago`);
    return make("tr", {}, ...(several ? [make("td", {}, name)] : []), make("td", {}, message), make("td", {}, channel), state);
  }));
  const heads = [...(several ? ["Node"] : []), "Message", "Channel", "Ack"].map((head) => make("th", { scope: "col" }, head));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  byId("unacked").replaceChildren(rows.length ? table : none("No message waits for an ack."));
}

/** A time line with a logarithmic scale, and the same as a list. */
function showDeadlines({ machines, at_ms }) {
  const all = machines.flatMap(({ name, deadlines = [] }) => deadlines.map((deadline) => ({ name, ...deadline })));
  all.sort((a, b) => a.at_ms - b.at_ms);
  if (!all.length) return byId("deadlines").replaceChildren(none("Nothing is due."));
  const size = (ms) => Math.log10(1 + Math.max(0, ms) / 100);
  const longest = size(all[all.length - 1].at_ms - at_ms) || 1;
  const place = (element, ms) => {
    element.style.left = `${(100 * size(ms)) / longest}%`;
    return element;
  };
  const ticks = [["1 s", 1000], ["1 min", 60000], ["1 h", 3600000], ["1 d", 86400000]].filter(([, ms]) => size(ms) < longest * 0.97);
  const line = make("div", { class: "line", "aria-hidden": "true" },
    ...ticks.flatMap(([text, ms]) => [place(make("b"), ms), place(make("span", {}, text), ms)]),
    ...all.map((deadline) => place(make("i"), deadline.at_ms - at_ms)));
  const items = all.map(({ name, at_ms: due, reason }) => make("li", {},
    make("strong", {}, reason), `${machines.length > 1 ? ` of ${name}` : ""} in ${span(Math.max(0, due - at_ms))}, at ${offset(due)}`));
  byId("deadlines").replaceChildren(line, make("ul", {}, ...items));
}

function showFacts({ facts = [] }) {
  byId("facts").parentElement.hidden = !facts.length;
  byId("facts").replaceChildren(...facts.map((fact) => make("li", {}, fact)));
}

function show(number) {
  at = Math.max(0, Math.min(number, steps.length - 1));
  const step = steps[at];
  const buttons = [...byId("events").querySelectorAll("button")];
  buttons.forEach((button) => button.removeAttribute("aria-current"));
  buttons[at].setAttribute("aria-current", "step");
  // The list is scrolled, never the page: on a phone the list is below everything else.
  byId("events").scrollTop = buttons[at].offsetTop - byId("events").clientHeight / 2;
  for (const [id, to] of [["first", 0], ["back", 0], ["forward", steps.length - 1], ["last", steps.length - 1]])
    byId(id).disabled = at === to;
  const wrong = step.expected || step.report ? ", which fails" : "";
  byId("position").textContent = `Step ${at + 1} of ${steps.length}${wrong}, at ${offset(step.at_ms)}`;
  lightPhases(step, at ? steps[at - 1] : recording);
  showEffects(step);
  showUnacked(step);
  showDeadlines(step);
  showFacts(step);
  history.replaceState(null, "", `#${encodeURIComponent(nameOf(recording))}:${at + 1}`);
}

/** Reads an address such as `#month_move.session:7`. */
function open() {
  const [name, number] = decodeURIComponent(location.hash.slice(1)).split(/:(?=\d+$)/);
  choose(Math.max(0, recordings.findIndex((recording) => nameOf(recording) === name)));
  const wrong = steps.findIndex((step) => step.expected || step.report);
  show(number ? Number(number) - 1 : recordings.length === 1 ? Math.max(0, wrong) : 0);
}

function fillChooser() {
  byId("chooser").hidden = recordings.length === 1;
  const groups = new Map();
  recordings.forEach((recording, index) => {
    if (!groups.has(recording.language)) groups.set(recording.language, make("optgroup", { label: recording.language }));
    const failed = recording.failed ? " (fails)" : "";
    groups.get(recording.language).append(make("option", { value: index }, `${nameOf(recording).replace(/\.[^.]*$/, "").replaceAll("_", " ")}${failed}`));
  });
  byId("script").append(...groups.values());
}

const moves = { first: () => 0, back: () => at - 1, forward: () => at + 1, last: () => steps.length - 1 };
const keys = { Home: "first", ArrowLeft: "back", ArrowRight: "forward", End: "last" };
for (const id of Object.keys(moves)) byId(id).addEventListener("click", () => show(moves[id]()));
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("select, .scroll")) return;
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  show(moves[keys[event.key]]());
});
byId("script").addEventListener("change", (event) => {
  choose(Number(event.target.value));
  show(0);
});
addEventListener("hashchange", open);
addEventListener("resize", () => show(at));
fillChooser();
open();
