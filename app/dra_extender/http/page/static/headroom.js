// @ts-check
/** How many more pods fit, by device class. */
import { bar, byId, counted, element, fill } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */

/** The most decisions for one class. */
const DECISIONS = 1_000;

/** What the service is asked for a class. @param {string} name */
export function headroomQuestion(name) {
  return `insight/headroom?${new URLSearchParams({ class: name, limit: String(DECISIONS) })}`;
}

/** @param {Model} model @param {import("./answers.js").Answers} answers */
export function showHeadroom(model, answers) {
  const classes = model.nodes.classes.flatMap((name) => {
    const found = answers.get(headroomQuestion(name));
    return found ? [{ ...found, name }] : [];
  });
  fill(
    byId("headroom"),
    element("h2", { id: "headroom-title" }, "Headroom"),
    element("p", { class: "soft" }, text(model, classes.length)),
    classes.length > 0 && element("ul", { class: "headroom-list" }, ...classes.map(item)),
  );
}

/** @param {Model} model @param {number} classes */
function text(model, classes) {
  if (classes) return "How many more pods with one device of each class fit now. Only devices are compared, not CPU or memory.";
  return model.nodes.known && !model.nodes.classes.length ? "None: the cluster has no DeviceClass." : "Loading …";
}

/** @param {any} found */
function item(found) {
  const figure = found.problem ? "unknown" : `${found.complete ? "" : "at least "}${counted(found.fits, "pod")}`;
  return element("li", {},
    element("span", { class: "name", title: found.name }, found.name),
    element("span", { class: "figure" }, figure),
    bar(found.of ? (100 * found.nodes) / found.of : 0, "room"),
    element("span", { class: "soft" }, found.problem || (found.nodes ? `on ${found.nodes.toLocaleString("en")} of ${counted(found.of, "node")}` : `on 0 of ${counted(found.of, "node")}`)));
}
