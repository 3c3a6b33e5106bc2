// @ts-check
/** Pending pods, the oldest first: why they wait, and what would help. */
import { copyable, podCommand, whyCommand } from "./commands.js";
import { age, byId, counted, element, fill } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */

export class Pods {
  constructor() {
    this.title = element("h2", { id: "pods-title" }, "Pending pods");
    this.note = element("p", { class: "soft" });
    this.list = element("ol", { class: "pods" });
    /** @type {Map<string, {item: HTMLElement, drawn: string, age: HTMLElement, body: HTMLElement}>} */
    this.items = new Map();
    byId("pods").append(this.title, this.note, this.list);
  }

  /** @param {Model} model @param {number} now  Milliseconds, by the clock of the service */
  show(model, now) {
    const pods = [...model.pods.values()].sort((a, b) => a.created.localeCompare(b.created) || a.name.localeCompare(b.name));
    for (const [uid, { item }] of this.items) {
      if (!model.pods.has(uid)) {
        item.remove();
        this.items.delete(uid);
      }
    }
    let place = 0;
    for (const pod of pods) {
      const shown = this.items.get(pod.uid) ?? this.item(pod);
      if (this.list.children[place] !== shown.item) this.list.insertBefore(shown.item, this.list.children[place] ?? null);
      const why = model.diagnoses.get(pod.uid);
      const drawn = JSON.stringify(why ?? null);
      if (drawn !== shown.drawn) {
        fill(shown.body, ...(why ? reasons(why) : [element("p", { class: "soft" }, "Diagnosing …")]));
        shown.drawn = drawn;
      }
      const created = Date.parse(pod.created);
      shown.age.textContent = Number.isNaN(created) ? "" : age((now - created) / 1000);
      place += 1;
    }
    const hidden = model.podsTotal - pods.length;
    this.title.textContent = model.podsTotal ? `Pending pods (${model.podsTotal.toLocaleString("en")})` : "Pending pods";
    this.note.textContent = pods.length ? (hidden > 0 ? `The oldest ${pods.length} are shown.` : "") : "No pod is waiting for devices.";
    this.note.hidden = !this.note.textContent;
  }

  /** @param {any} pod */
  item(pod) {
    const since = element("span", { class: "age", title: `created ${pod.created}` });
    const body = element("div", { class: "why" });
    const item = element("li", { "data-pod": `${pod.namespace}/${pod.name}` },
      element("p", { class: "pod" }, element("b", {}, pod.name), element("span", { class: "soft" }, ` in ${pod.namespace}`), since),
      body,
      element("details", {}, element("summary", {}, "Commands"), copyable(podCommand(pod.namespace, pod.name)), copyable(whyCommand(pod.namespace, pod.name))));
    const made = { item, drawn: "", age: since, body };
    this.items.set(pod.uid, made);
    return made;
  }
}

/** @param {any} why */
function reasons(why) {
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
  return element("div", { class: "remedy" }, element("p", {}, found.text, " ", element("span", { class: "soft" }, `(fits ${counted(found.nodes, "node")})`)), found.yaml && copyable(found.yaml, "Copy"));
}
