// @ts-check
/** The page: messages of the feed update the model, and the model is drawn once per frame. */
import { Answers } from "./answers.js";
import { Details } from "./details.js";
import { byId, counted, printable } from "./dom.js";
import { follow } from "./feed.js";
import { parse } from "./filter.js";
import { Grid, work } from "./grid.js";
import { headroomQuestion, showHeadroom } from "./headroom.js";
import { Model } from "./model.js";
import { Overview } from "./overview.js";
import { Pods } from "./pods.js";
import { PROBLEMS_QUESTION, showProblems } from "./problems.js";
import { signIn } from "./session.js";
import { theme } from "./theme.js";
import { WhatIf } from "./whatif.js";

let model = new Model();
/** The model of a connection that was not resumed; it replaces `model` when it is complete. */
/** @type {Model | null} */
let next = null;
let known = false;
let skew = 0;
let membership = -1;
let redraw = true;
let podsChanged = false;
/** Paths of questions that have other answers since the last frame. @type {Set<string>} */
let answered = new Set();
/** @type {import("./model.js").Row[]} */
let sorted = [];
let scheduled = false;

const grid = new Grid(byId("scroller"), byId("grid"), (row, device) => void details.open(row, device));
const details = new Details(() => {
  grid.mark("");
  grid.focusAgain();
});
const answers = new Answers((path) => {
  answered.add(path);
  schedule();
});
const pods = new Pods(answers, schedulePods);
const overview = new Overview((state) => {
  const words = filter.value.split(/\s+/).filter((/** @type {string} */ word) => word && !word.startsWith("state:"));
  const had = filter.value.includes(`state:${state}`);
  filter.value = [...words, ...(had ? [] : [`state:${state}`])].join(" ");
  again();
});
const filter = byId("filter");
const sort = byId("sort");

/** Numbers that tests and measurements read. */
const measured = { messages: 0, parts: 0, frames: 0, updates: 0, lastFrame: 0, longestFrame: 0, lastUpdate: 0, firstDevices: 0, work };
/** When the first message that is not drawn yet arrived; 0: all are drawn. */
let receivedAt = 0;
Object.assign(globalThis, { measured });

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    const started = performance.now();
    show();
    measured.frames += 1;
    measured.lastFrame = performance.now() - started;
    measured.longestFrame = Math.max(measured.longestFrame, measured.lastFrame);
    const since = receivedAt;
    receivedAt = 0;
    // A task after the frame: by then it has been drawn.
    if (since) setTimeout(() => {
      const now = performance.now();
      measured.lastUpdate = now - since;
      measured.updates += 1;
      if (grid.rows.length) measured.firstDevices ||= now;
    });
  });
}

/** Draw everything again. */
function again() {
  redraw = true;
  schedule();
}

function show() {
  const { dirty, changed } = model;
  model.dirty = new Set();
  model.changed = new Set();
  if (redraw || membership !== model.membership || (dirty.size && sort.value !== "name")) {
    sorted = model.sorted(sort.value);
    membership = model.membership;
  }
  const test = parse(filter.value);
  if (redraw || dirty.size) {
    const rows = test ? sorted.filter((row) => row.devices.some((device) => test(row, device))) : sorted;
    grid.test = test;
    grid.show(rows, dirty, redraw);
    showCount(rows.length);
    if (details.chosen && dirty.has(details.chosen.row.id)) void details.refresh();
  }
  if (redraw || dirty.size || changed.has("nodes") || changed.has("pods") || changed.has("status")) overview.show(model, filter.value);
  if (redraw || podsChanged || answered.has("insight/diagnosis") || changed.has("pod") || changed.has("pods")) pods.show(model, Date.now() + skew);
  if (redraw || answered.has(PROBLEMS_QUESTION)) showProblems(answers);
  if (redraw || answered.has("insight/headroom") || changed.has("nodes")) showHeadroom(model, answers);
  if (redraw || changed.has("status")) status();
  if (known && !model.status.unknown) {
    const [shown, others] = pods.questions;
    answers.want([...shown, PROBLEMS_QUESTION, ...model.nodes.classes.map(headroomQuestion)], others);
  }
  redraw = podsChanged = false;
  answered = new Set();
}

function schedulePods() {
  podsChanged = true;
  schedule();
}

/** @param {number} rows */
function showCount(rows) {
  const all = model.rows.size;
  const counting = known && !model.status.complete && !model.status.unknown;
  byId("shown").textContent = (rows === all ? everything() : `${rows.toLocaleString("en")} of ${counted(all, "row")}`) + (counting ? " so far …" : "");
  const empty = byId("empty");
  empty.hidden = rows > 0;
  byId("scroller").hidden = rows === 0;
  empty.textContent = all ? "No device matches the filter." : known && model.status.complete ? "No devices: no driver has published a ResourceSlice." : "Counting devices …";
}

/** The number of nodes, and of pools that belong to no single node. */
function everything() {
  const nodes = model.singles;
  const pools = model.rows.size - nodes;
  return counted(nodes, "node") + (pools ? `, ${counted(pools, "pool")}` : "");
}

function status() {
  const banner = byId("banner");
  banner.hidden = !model.status.unknown;
  banner.textContent = model.status.unknown ? printable(`The cluster is not known yet: ${model.status.unknown}`) : "";
  showCount(grid.rows.length);
}

filter.addEventListener("input", again);
sort.addEventListener("change", again);
byId("sign-in").addEventListener("click", () => location.reload());
addEventListener("keydown", (event) => {
  if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
    event.preventDefault();
    filter.focus();
  }
});
setInterval(() => pods.show(model, Date.now() + skew), 5000);
setInterval(() => void details.refresh(), 5000);

theme();
new WhatIf();
again();
void follow({
  hello(resumed, now) {
    skew = Date.parse(now) - Date.now();
    if (!resumed) next = known ? new Model() : model;
  },
  parts(put, drop, behind) {
    receivedAt ||= performance.now();
    measured.messages += 1;
    measured.parts += put.length + drop.length;
    const target = next ?? model;
    for (const part of put) target.put(part);
    for (const key of drop) target.drop(key);
    if (next && next !== model && !behind && (next.status.complete || next.status.unknown)) {
      model = next;
      redraw = true;
    }
    if (next === model) next = null;
    known = true;
    answers.change += 1;
    schedule();
  },
  live(live, detail) {
    const shown = byId("live");
    shown.dataset.live = live;
    shown.textContent = { connecting: "connecting …", live: "live", waiting: `not live: ${detail}`, refused: "not allowed" }[live];
    document.body.classList.toggle("stale", live === "waiting" || live === "refused");
  },
  async refused(refused) {
    const given = await signIn(refused.message);
    if (!given) {
      byId("live").textContent = "not signed in";
      await new Promise(() => {}); // until "Token …" reloads the page
    }
  },
});
