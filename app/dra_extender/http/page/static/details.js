// @ts-check
/** One device: what its slice publishes, its state, and the claims that hold it. */
import { claimCommand, copyable, podCommand } from "./commands.js";
import { bar, byId, element, fill } from "./dom.js";
import { ask } from "./session.js";
import { MEANING } from "./states.js";

export class Details {
  /** @param {() => void} closed */
  constructor(closed) {
    this.pane = byId("details");
    this.closed = closed;
    /** @type {{row: any, device: any} | null} */
    this.chosen = null;
    this.asked = 0;
    this.shown = "";
    this.pane.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") this.close();
    });
  }

  /** @param {any} row @param {any} device */
  async open(row, device) {
    this.chosen = { row, device };
    this.shown = "";
    this.frame(device, element("p", { class: "soft" }, "Loading …"));
    this.pane.hidden = false;
    document.body.classList.add("with-details");
    this.pane.focus({ preventScroll: false });
    await this.refresh();
  }

  close() {
    if (!this.chosen) return;
    this.chosen = null;
    this.pane.hidden = true;
    document.body.classList.remove("with-details");
    this.closed();
  }

  /** Ask again: the device may have changed. */
  async refresh() {
    if (!this.chosen) return;
    const { device } = this.chosen;
    const turn = ++this.asked;
    const query = new URLSearchParams({ driver: device.driver, pool: device.pool, device: device.name });
    try {
      const found = await (await ask(`insight/device?${query}`)).json();
      if (turn !== this.asked || !this.chosen) return;
      const text = JSON.stringify(found);
      if (text !== this.shown) this.frame(device, ...describe(found));
      this.shown = text;
    } catch (error) {
      if (turn === this.asked && this.chosen) this.frame(device, element("p", { class: "empty" }, error instanceof Error ? error.message : String(error)));
    }
  }

  /** @param {any} device @param {...any} content */
  frame(device, ...content) {
    const close = element("button", { type: "button", class: "quiet close", "aria-label": "Close the details", on: { click: () => this.close() } }, "✕");
    const had = this.pane.contains(document.activeElement) && document.activeElement !== this.pane;
    fill(this.pane, element("div", { class: "title" }, element("h2", { id: "details-title" }, device.name), close), ...content);
    if (had) this.pane.focus({ preventScroll: true });
  }
}

/** @param {any} found @returns {any[]} */
function describe(found) {
  const { device } = found;
  return [
    element("p", { class: "state" }, element("span", { class: `cell swatch ${device.state}`, "aria-hidden": "true" }), element("span", {}, element("b", {}, device.state), `: ${MEANING[/** @type {"used"} */ (device.state)]}`)),
    device.problem && element("p", { class: "problem" }, device.problem),
    facts([["Node", device.node || found.nodes], ["Driver", device.driver], ["Pool", device.pool], ["Slice", found.slice], ["Classes", (device.classes ?? []).join(", ") || "none"]]),
    ...list("Allocated to", "holders", [...(device.holders ?? []).map(holder), ...(device.more_holders ? [element("li", {}, `and ${device.more_holders} more`)] : [])]),
    ...list("Capacity", "amounts", [...(device.capacity ?? []), ...plain(found.capacity, device.capacity ?? [])].map(amount)),
    ...list("Counters of the pool", "amounts", (device.counters ?? []).map(amount)),
    ...list("Taints", "taints", found.taints.map(taint)),
    ...attributes(found.attributes),
  ];
}

/** A list with a title; nothing without items. @param {string} title @param {string} kind @param {any[]} items */
function list(title, kind, items) {
  return items.length ? [element("h3", {}, title), element("ul", { class: kind }, ...items)] : [];
}

/** @param {any} holding */
function holder(holding) {
  const namespace = holding.claim.split("/")[0];
  const pods = holding.pods ?? [];
  const consumed = Object.entries(holding.consumed ?? {}).map(([name, amount]) => `${name} ${amount}`).join(", ");
  const command = claimCommand(holding.claim);
  return element("li", {},
    element("p", {}, "claim ", element("b", {}, holding.claim), consumed && ` takes ${consumed}`, holding.in_flight && element("span", { class: "tag" }, "being bound")),
    element("p", {}, pods.length ? "for pod " : "for no pod", ...pods.flatMap((/** @type {string} */ pod, /** @type {number} */ place) => [place ? ", " : "", element("b", {}, pod)])),
    command && copyable(command),
    ...pods.slice(0, 3).map((/** @type {string} */ pod) => copyable(podCommand(namespace, pod))));
}

/** Capacity without consumed amounts. @param {Record<string, string>} capacity @param {any[]} consumable */
function plain(capacity, consumable) {
  const known = new Set(consumable.map((amount) => amount.name));
  return Object.entries(capacity).filter(([name]) => !known.has(name)).map(([name, of]) => ({ name, of, used: "", percent: 0 }));
}

/** @param {any} amount */
function amount(amount) {
  return element("li", {}, element("span", {}, amount.name), element("span", { class: "figure" }, amount.used ? `${amount.used} of ${amount.of}` : amount.of), amount.used && bar(amount.percent));
}

/** @param {any} taint */
function taint(taint) {
  return element("li", {}, element("b", {}, `${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`), taint.timeAdded && element("span", { class: "soft" }, ` since ${taint.timeAdded}`));
}

/** @param {Record<string, string>} found */
function attributes(found) {
  const names = Object.keys(found).sort();
  return names.length ? [element("h3", {}, "Attributes"), facts(names.map((name) => [name, found[name]]))] : [];
}

/** @param {string[][]} pairs */
function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}
