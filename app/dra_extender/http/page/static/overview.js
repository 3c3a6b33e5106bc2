// @ts-check
/** How full the cluster is: the states of all devices as one bar, which is a legend and a filter too, and how much is free per node. */
import { byId, counted, element, fill } from "./dom.js";
import { MEANING, STATES } from "./states.js";

/** @typedef {import("./model.js").Model} Model */

/** Numbers of free devices that have a bar each; where there are more, bars stand for ranges, and fewer fit. */
const BARS = 9;
const RANGES = 6;

export class Overview {
  /** @param {(state: string) => void} narrow  Show devices of one state. */
  constructor(narrow) {
    this.whole = element("div", { class: "whole", role: "img" });
    this.legend = element("ul", { class: "legend" });
    this.numbers = element("dl", { class: "numbers" });
    this.bars = element("div", { class: "bars" });
    /** @type {Record<string, {segment: HTMLElement, count: HTMLElement, button: HTMLElement, item: HTMLElement}>} */
    this.states = {};
    for (const state of STATES) {
      const count = element("b", {}, "0");
      const button = element(
        "button",
        { type: "button", class: "key", title: MEANING[state], "aria-pressed": "false", on: { click: () => narrow(state) } },
        element("span", { class: `cell swatch ${state}`, "aria-hidden": "true" }), " ", count, ` ${state}`,
      );
      const item = element("li", {}, button);
      const segment = element("span", { class: `segment ${state}` });
      this.states[state] = { segment, count, button, item };
      this.whole.append(segment);
      this.legend.append(item);
    }
    this.figure = element("figure", { class: "free-per-node" }, this.bars, element("figcaption", {}, "nodes by free devices"));
    byId("overview").append(element("div", { class: "fullness" }, this.numbers, this.whole, this.legend), this.figure);
  }

  /** @param {Model} model @param {string} filter */
  show(model, filter) {
    for (const state of STATES) {
      const { segment, count, button, item } = this.states[state];
      const number = model.counts[state];
      segment.style.flexGrow = String(number);
      segment.hidden = !number;
      count.textContent = number.toLocaleString("en");
      button.setAttribute("aria-pressed", String(filter.includes(`state:${state}`)));
      item.hidden = !number && !["used", "free"].includes(state);
    }
    const percent = model.fill / Math.max(1, model.units);
    const taken = percent > 0 && percent < 1 ? "< 1" : percent > 99 && percent < 100 ? "> 99" : Math.round(percent);
    this.whole.setAttribute("aria-label", `${STATES.filter((state) => model.counts[state]).map((state) => `${model.counts[state]} ${state}`).join(", ") || (model.status.complete ? "no devices" : "loading")}`);
    const nodes = model.nodes.count;
    const pods = model.podsTotal;
    fill(
      this.numbers,
      ...number(model.status.complete ? `${taken}%` : "…", "taken"),
      ...number((model.status.complete || model.devices ? model.devices.toLocaleString("en") : "") + (model.status.complete ? "" : " …"), model.devices === 1 ? "device" : "devices"),
      ...number(model.nodes.known ? nodes.toLocaleString("en") : "…", nodes === 1 ? "node" : "nodes"),
      ...number(pods?.toLocaleString("en") ?? "…", pods === 1 ? "pending pod" : "pending pods", pods ? "warn" : ""),
    );
    this.histogram(model);
  }

  /** @param {Model} model */
  histogram(model) {
    const rows = [...model.rows.values()].filter((row) => row.single);
    const most = rows.reduce((most, row) => Math.max(most, row.units), 0);
    const wide = most < BARS ? 1 : Math.ceil((most + 1) / RANGES);
    const bars = Array.from({ length: Math.ceil((most + 1) / wide) }, () => 0);
    for (const row of rows) bars[Math.min(bars.length - 1, Math.floor(row.free / wide))] += 1;
    this.figure.hidden = !rows.length;
    const highest = Math.max(1, ...bars);
    fill(
      this.bars,
      ...bars.map((nodes, place) => {
        const column = element("span", { class: "column" });
        column.style.height = `${nodes ? Math.max(3, Math.round((44 * nodes) / highest)) : 1}px`;
        const last = Math.min(most, (place + 1) * wide - 1);
        const free = wide === 1 || last <= place * wide ? `${place * wide}` : `${place * wide}–${last}`;
        return element(
          "span",
          { class: "bar-of", title: `${counted(nodes, "node")} with ${free} free` },
          element("span", { class: "over" }, nodes ? nodes.toLocaleString("en") : ""), column, element("span", { class: "under" }, free),
        );
      }),
    );
  }
}

/** @param {string} value @param {string} name @param {string} [kind] */
function number(value, name, kind = "") {
  return [element("div", { class: kind }, element("dd", {}, value), element("dt", {}, name))];
}
