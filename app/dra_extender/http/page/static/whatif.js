// @ts-check
/** What if: hypothetical changes, and which pods would fit then. */
import { byId, counted, element, fill } from "./dom.js";
import { ask } from "./session.js";

const TITLES = [
  ["no more", "would not fit any more"],
  ["would fit", "would fit then"],
  ["does not fit", "would still not fit"],
  ["fits", "would fit, as now"],
];
/** Pods of one kind that are listed. */
const MOST = 20;

export class WhatIf {
  constructor() {
    this.count = input("add-count", "number", "1", { min: 1, max: 100 });
    this.like = input("add-like", "text", "node name");
    this.drain = input("drain", "text", "node name");
    this.without = input("without", "text", "namespace/name");
    this.answer = element("div", { class: "answer", role: "status" });
    this.button = element("button", { type: "submit" }, "Try it");
    this.count.value = "1";
    const form = element("form", { class: "whatif", autocomplete: "off", on: { submit: (/** @type {Event} */ event) => this.submit(event) } },
      field("More nodes like", this.like, element("label", { class: "times" }, element("span", { class: "unseen" }, "How many"), "× ", this.count)),
      field("Drain the node", this.drain),
      field("Without the pod", this.without),
      element("p", { class: "buttons" }, this.button));
    fill(byId("whatif"),
      element("h2", { id: "whatif-title" }, "What if?"),
      element("p", { class: "soft" }, "Nothing is changed. The service decides again for pending pods, and for pods that would lose their node."),
      form, this.answer);
  }

  /** @returns {Record<string, any> | null} */
  body() {
    const text = (/** @type {HTMLInputElement} */ given) => given.value.trim();
    /** @type {Record<string, any>} */
    const body = {};
    if (text(this.like)) body.addNodes = [{ like: text(this.like), count: Number(this.count.value) || 1 }];
    if (text(this.drain)) body.drain = [text(this.drain)];
    if (text(this.without)) body.withoutPods = [text(this.without)];
    return Object.keys(body).length ? body : null;
  }

  /** @param {Event} event */
  async submit(event) {
    event.preventDefault();
    const body = this.body();
    if (!body) {
      fill(this.answer, element("p", { class: "soft" }, "Fill in at least one change."));
      return;
    }
    this.button.disabled = true;
    fill(this.answer, element("p", { class: "soft" }, "Deciding …"));
    try {
      const headers = { "Content-Type": "application/json" };
      const found = await (await ask("insight/whatif", { method: "POST", headers, body: JSON.stringify(body) })).json();
      fill(this.answer, ...answer(found));
    } catch (error) {
      fill(this.answer, element("p", { class: "problem" }, error instanceof TypeError ? "The service cannot be reached." : error instanceof Error ? error.message : String(error)));
    } finally {
      this.button.disabled = false;
    }
  }
}

/**
 * @param {string} id
 * @param {string} type
 * @param {string} placeholder
 * @param {Record<string, any>} [more]
 */
function input(id, type, placeholder, more = {}) {
  return element("input", { id, type, placeholder, spellcheck: false, autocomplete: "off", ...more });
}

/** @param {string} name @param {any} given @param {any} [more] */
function field(name, given, more) {
  return element("div", { class: "field" }, element("label", { for: given.id }, name), element("span", { class: "given" }, given, more));
}

/** @param {any} found */
function answer(found) {
  const { outcomes } = found;
  const lists = TITLES.flatMap(([verdict, title]) => {
    const pods = outcomes.filter((/** @type {any} */ outcome) => outcome.verdict === verdict);
    if (!pods.length) return [];
    return [
      element("h3", { class: verdict === "no more" ? "bad" : verdict === "would fit" ? "good" : "" }, `${counted(pods.length, "pod")} ${title}`),
      element("ul", {}, ...pods.slice(0, MOST).map(item), pods.length > MOST && element("li", { class: "soft" }, `and ${counted(pods.length - MOST, "more pod")}`)),
    ];
  });
  return [
    found.nodes_added.length > 0 && element("p", { class: "soft" }, `With ${counted(found.nodes_added.length, "more node")}.`),
    ...found.problems.map((/** @type {string} */ problem) => element("p", { class: "problem" }, problem)),
    ...(lists.length ? lists : [element("p", {}, "No pod is pending, and none would lose its node.")]),
    found.left_out > 0 && element("p", { class: "soft" }, `Not evaluated: ${counted(found.left_out, "more pod")}.`),
  ];
}

/** @param {any} outcome */
function item(outcome) {
  const from = outcome.displaced && outcome.now && outcome.node ? `${outcome.now} → ` : "";
  return element("li", {},
    element("b", {}, outcome.pod), element("span", { class: "soft" }, outcome.node ? ` ${from}${outcome.node}` : ` ${outcome.reason}`));
}
