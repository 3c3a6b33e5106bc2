// @ts-check
/** How many more pods fit, by device class. */
import { bar, byId, counted, element, fill } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */

/** @param {Model} model */
export function showHeadroom(model) {
  const rooms = [...model.rooms.values()].sort((a, b) => a.name.localeCompare(b.name));
  fill(
    byId("headroom"),
    element("h2", { id: "headroom-title" }, "Headroom"),
    element("p", { class: "soft" }, rooms.length ? "How many more pods with one device of each class fit now. Only devices are compared, not CPU or memory." : "No DeviceClass is known, or none has been evaluated yet."),
    rooms.length > 0 && element("ul", { class: "rooms" }, ...rooms.map(item)),
  );
}

/** @param {any} room */
function item(room) {
  const figure = room.problem ? "unknown" : `${room.complete ? "" : "at least "}${counted(room.fits, "pod")}`;
  return element("li", {},
    element("span", { class: "name", title: room.name }, room.name),
    element("span", { class: "figure" }, figure),
    bar(room.of ? (100 * room.nodes) / room.of : 0, "room"),
    element("span", { class: "soft" }, room.problem || (room.nodes ? `on ${room.nodes.toLocaleString("en")} of ${counted(room.of, "node")}` : `on 0 of ${counted(room.of, "node")}`)));
}
