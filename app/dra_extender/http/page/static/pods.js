// @ts-check
/** Pending pods, the oldest first, equal ones in one row: why they wait, and what would help. */
import { copyable, podCommand, whyCommand } from "./commands.js";
import { age, byId, counted, element, fill } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */

/** Rows of one page. */
const PAGE = 10;
/** Pods whose diagnoses are asked for without being shown, so that the filter finds their reasons. */
const MOST = 100;

/** What the service is asked for a pod. @param {any} pod */
function question(pod) {
  return `insight/diagnosis?${new URLSearchParams({ pod: `${pod.namespace}/${pod.name}` })}`;
}

export class Pods {
  /** @param {import("./answers.js").Answers} answers @param {() => void} changed  What has to be shown has changed. */
  constructor(answers, changed) {
    this.answers = answers;
    this.changed = changed;
    this.page = 0;
    /** The questions for the pods that are shown, and for others. @type {[string[], string[]]} */
    this.questions = [[], []];
    this.title = element("h2", { id: "pods-title" }, "Pending pods");
    this.note = element("p", { class: "soft", role: "status" });
    this.filter = element("input", { id: "pods-filter", type: "search", autocomplete: "off", spellcheck: false, placeholder: "pod, namespace or reason", on: { input: () => this.turn(0) } });
    this.search = element("label", { class: "search" }, element("span", { class: "unseen" }, "Show pending pods with"), this.filter);
    this.list = element("ol", { class: "pods" });
    this.previous = element("button", { type: "button", on: { click: () => this.turn(this.page - 1) } }, "Previous");
    this.next = element("button", { type: "button", on: { click: () => this.turn(this.page + 1) } }, "Next");
    this.place = element("span", { class: "soft figure" });
    this.pages = element("p", { class: "pages" }, this.previous, this.place, this.next);
    /** @type {Map<string, any>} */
    this.items = new Map();
    byId("pods").append(this.title, this.search, this.note, this.list, this.pages);
  }

  /** @param {number} page */
  turn(page) {
    this.page = page;
    this.changed();
  }

  /** @param {Model} model @param {number} now  Milliseconds, by the clock of the service */
  show(model, now) {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...model.pods.values()].sort((a, b) => a.created.localeCompare(b.created) || a.name.localeCompare(b.name, "en", { numeric: true }));
    const found = words.length ? all.filter((pod) => matches(pod, this.answers.get(question(pod)), words)) : all;
    this.page = Math.max(0, Math.min(this.page, Math.ceil(found.length / PAGE) - 1));
    const first = PAGE * this.page;
    const pods = found.slice(first, first + PAGE);
    this.keep(new Set(pods.map((pod) => pod.uid)));
    // The feed lists namespaces in turns.
    this.questions = [pods.map(question), [...model.pods.values()].slice(0, MOST).map(question)];
    pods.forEach((pod, place) => {
      const shown = this.items.get(pod.uid) ?? this.item(pod);
      if (this.list.children[place] !== shown.item) this.list.insertBefore(shown.item, this.list.children[place] ?? null);
      draw(shown, pod, this.answers.get(question(pod)), now);
    });
    this.search.hidden = all.length <= PAGE && !words.length;
    this.pages.hidden = found.length <= PAGE;
    this.previous.disabled = this.page === 0;
    this.next.disabled = first + PAGE >= found.length;
    this.place.textContent = `${first + 1}–${first + pods.length} of ${counted(found.length, "row")}`;
    this.title.textContent = model.podsTotal ? `Pending pods (${model.podsTotal.toLocaleString("en")})` : "Pending pods";
    this.note.textContent = note(model.podsTotal, sum(all), words.length ? sum(found) : null);
    this.note.hidden = !this.note.textContent;
  }

  /** Remove the other rows. @param {Set<string>} uids */
  keep(uids) {
    for (const [uid, { item }] of this.items) {
      if (!uids.has(uid)) {
        item.remove();
        this.items.delete(uid);
      }
    }
  }

  /** @param {any} pod */
  item(pod) {
    const head = element("p", { class: "pod" });
    const body = element("div", { class: "why" });
    const others = element("div");
    const item = element("li", { "data-pod": `${pod.namespace}/${pod.name}` }, head, body, others,
      element("details", {}, element("summary", {}, "Commands"), copyable(podCommand(pod.namespace, pod.name)), copyable(whyCommand(pod.namespace, pod.name))));
    const made = { item, head, body, others, age: head, drawn: "", told: "" };
    this.items.set(pod.uid, made);
    return made;
  }
}

/** @param {any} shown @param {any} pod @param {any} why @param {number} now */
function draw(shown, pod, why, now) {
  const drawn = JSON.stringify(pod);
  if (drawn !== shown.drawn) {
    shown.drawn = drawn;
    const more = (pod.count ?? 1) - 1;
    shown.age = element("span", { class: "age", title: `the oldest was created ${pod.created}` });
    fill(shown.head, element("b", {}, pod.gang || pod.name), " ", more > 0 && element("span", { class: "count" }, `× ${pod.count.toLocaleString("en")}`), element("span", { class: "soft" }, ` in ${pod.namespace}`), shown.age);
    const open = shown.others.querySelector("details")?.open ?? false;
    const unnamed = more - (pod.others ?? []).length;
    fill(shown.others, more > 0 && element("details", { open }, element("summary", {}, pod.gang ? counted(pod.count, "pod") : counted(more, "equal pod")),
      element("p", {}, [...(pod.gang ? [pod.name] : []), ...pod.others].join(", "), unnamed > 0 && ` and ${unnamed.toLocaleString("en")} more`)));
  }
  // An answer has more than is shown; a row whose text stays is not drawn again, so what is open stays open.
  const told = JSON.stringify(why && [why.problem, why.state, why.summary, why.fits, why.remedies, why.complete, why.unchecked]) ?? "";
  if (told !== shown.told) {
    shown.told = told;
    fill(shown.body, ...(why ? reasons(why) : [element("p", { class: "soft" }, "Diagnosing …")]));
  }
  const created = Date.parse(pod.created);
  shown.age.textContent = Number.isNaN(created) ? "" : age((now - created) / 1000);
}

/** @param {number | null} total @param {number} listed @param {number | null} found  null without a filter */
function note(total, listed, found) {
  if (total === null) return "Loading …";
  if (!total) return "No pod is waiting for devices.";
  if (found !== null) return `The filter matches ${found.toLocaleString("en")} of ${counted(total, "pod")}.`;
  return listed && listed < total ? `${counted(total - listed, "more pod")} not listed.` : "";
}

/** How many pods these rows are. @param {any[]} rows */
function sum(rows) {
  return rows.reduce((all, pod) => all + (pod.count ?? 1), 0);
}

/** True when every word occurs. @param {any} pod @param {any} why @param {string[]} words */
function matches(pod, why, words) {
  const text = [`${pod.namespace}/${pod.name}`, pod.gang ?? "", ...(pod.others ?? []), why?.summary ?? ""].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** @param {any} why */
function reasons(why) {
  if (why.problem) return [element("p", { class: "problem" }, why.problem)];
  if (why.state === "fits") {
    return [element("p", {}, `Fits ${counted(why.fits, "node")} now. Not checked: ${why.unchecked.join(", ")}.`)];
  }
  const [first, ...others] = why.remedies;
  return [
    element("p", { class: "summary" }, why.summary || "Fits no node."),
    first ? element("div", { class: "help" }, element("span", { class: "lead" }, "Suggestion"), remedy(first)) : element("p", { class: "soft" }, why.complete ? "No single change is known to help." : "No helpful change was found in the available time."),
    others.length > 0 && element("details", {}, element("summary", {}, counted(others.length, "other way")), ...others.map((/** @type {any} */ other) => element("div", { class: "help" }, remedy(other)))),
  ];
}

/** @param {any} found */
function remedy(found) {
  return element("div", { class: "remedy" }, element("p", {}, found.text, " ", element("span", { class: "soft" }, `(then it fits ${counted(found.nodes, "node")})`)), found.yaml && copyable(found.yaml, "Copy"));
}
