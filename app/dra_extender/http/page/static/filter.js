// @ts-check
/**
 * Which devices the words of the filter mean. Every word has to be found: `state:free`, `node:`, `class:`, `driver:`,
 * `model:`, `taint:` (of the node), `namespace:` and `claim:` look at one thing (the beginning of it), other words anywhere.
 */

/** @typedef {import("./model.js").Row} Row */
/** @typedef {import("./model.js").Device} Device */
/** @typedef {(row: Row, device: Device) => boolean} Test */

/** @type {Record<string, (row: Row, device: Device) => string[]>} */
const FIELDS = {
  node: (row) => [row.name],
  class: (row, device) => device.classes,
  driver: (row, device) => [device.driver],
  device: (row, device) => [device.name],
  state: (row, device) => [device.state],
  model: (row, device) => [device.model],
  taint: (row) => row.node.taints,
  namespace: (row, device) => device.claims.map((claim) => claim.split("/")[0]),
  claim: (row, device) => device.claims.flatMap((claim) => [claim, claim.split("/")[1] ?? ""]),
};

/**
 * @param {string} text
 * @returns {Test | null}  null: everything
 */
export function parse(text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map(word);
  return tests.length ? (row, device) => tests.every((test) => test(row, device)) : null;
}

/**
 * @param {string} given
 * @returns {Test}
 */
function word(given) {
  const colon = given.indexOf(":");
  const name = given.slice(0, colon);
  if (colon > 0 && Object.hasOwn(FIELDS, name)) {
    const wanted = given.slice(colon + 1);
    return (row, device) => FIELDS[name](row, device).some((value) => value.toLowerCase().startsWith(wanted));
  }
  return (row, device) => words(row, device).includes(given);
}

/** @param {Row} row @param {Device} device */
function words(row, device) {
  if (!device.words) {
    device.words = [row.name, device.pool, device.driver, device.name, device.state, device.model, ...device.classes, ...device.claims].join("\n").toLowerCase();
  }
  return device.words;
}
