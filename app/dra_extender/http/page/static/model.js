// @ts-check
/** What the feed has sent: rows of devices, pending pods, classes, problems. This module does not use the document. */
import { STATES } from "./states.js";

/**
 * @typedef {import("./states.js").State} State
 * @typedef {object} Device
 * @property {string} driver
 * @property {string} pool
 * @property {string} name
 * @property {State} state
 * @property {number} fill     percent that is taken
 * @property {string[]} classes
 * @property {string} model
 * @property {number} holders
 * @property {string[]} claims   namespace/name of the first holders
 * @property {string} problem
 * @property {boolean} first   the first one of its pool
 * @property {number} set      the counter set that it is a partition of; -1 without one
 * @property {string} words    the text that the filter searches
 *
 * @typedef {{name: string, used: string, of: string, percent: number}} Amount
 *
 * Devices that stand together: the partitions of a GPU, or those that are no partitions (without a title).
 * @typedef {{title: string, fill: number, counters: Amount[], devices: Device[]}} Group
 *
 * @typedef {object} Row
 * @property {string} id
 * @property {string} name
 * @property {boolean} single  the row is a node; false: a pool that belongs to no single node
 * @property {Map<string, any>} parts
 * @property {Device[]} devices
 * @property {Group[]} groups
 * @property {string} models   the number of devices of each model
 * @property {{cordoned: boolean, taints: string[]}} node
 * @property {number} longest  letters of the longest name
 * @property {Record<State, number>} counts
 * @property {number} units   devices, where the partitions of a GPU are one
 * @property {number} free    units that are free; a GPU of which no partition is taken
 * @property {number} partly  GPUs of which some partitions are taken and others free
 * @property {number} fill    percent that is taken, of all units together
 */

const natural = new Intl.Collator("en", { numeric: true });

/** A node without taints. */
const PLAIN = { cordoned: false, taints: [] };

/** @returns {Record<State, number>} */
function none() {
  return { used: 0, shared: 0, free: 0, tainted: 0, blocked: 0, unusable: 0 };
}

export class Model {
  constructor() {
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Record<State, number>} */
    this.counts = none();
    this.devices = 0;
    this.units = 0;
    this.fill = 0;
    /** Rows that are nodes. */
    this.singles = 0;
    /** @type {Map<string, any>} by UID */
    this.pods = new Map();
    /** null: not known yet. @type {number | null} */
    this.podsTotal = null;
    /** The number of nodes, and names of device classes. @type {{count: number, classes: string[], known: boolean}} */
    this.nodes = { count: 0, classes: [], known: false };
    /** Nodes with taints. @type {Map<string, {cordoned: boolean, taints: string[]}>} */
    this.tainted = new Map();
    this.status = { unknown: "", complete: false };
    /** @type {Map<string, string>} key of a part of devices → its row */
    this.rowOf = new Map();
    /** @type {Set<string>} rows that have changed since the last frame */
    this.dirty = new Set();
    /** Grows when a row is added or removed. */
    this.membership = 0;
    /** Kinds of parts that have changed since the last frame. @type {Set<string>} */
    this.changed = new Set();
  }

  /** @param {any} part */
  put(part) {
    this.changed.add(part.kind);
    switch (part.kind) {
      case "devices": return this.putDevices(part.key, part);
      case "pod": this.pods.set(part.uid, part); return;
      case "pods": this.podsTotal = part.total; return;
      case "nodes": this.nodes = { ...part, known: true }; return;
      case "node": return this.putNode(part.name, part);
      case "status": this.status = part; return;
    }
  }

  /** @param {string} key */
  drop(key) {
    const [kind, id] = key.split("\n", 2);
    this.changed.add(kind);
    if (kind === "pod") this.pods.delete(id);
    else if (kind === "node") this.putNode(id, null);
    else if (kind === "devices") this.dropDevices(key);
  }

  /** The rows in this order. @param {string} order */
  sorted(order) {
    const rows = [...this.rows.values()];
    const byName = (/** @type {Row} */ a, /** @type {Row} */ b) => natural.compare(a.name, b.name);
    const full = (/** @type {Row} */ row) => row.fill / Math.max(1, row.units);
    if (order === "free") return rows.sort((a, b) => b.free - a.free || full(a) - full(b) || byName(a, b));
    if (order === "full") return rows.sort((a, b) => full(b) - full(a) || a.free - b.free || byName(a, b));
    return rows.sort(byName);
  }

  /** @param {string} name @param {any} part  null: it has no taints any more */
  putNode(name, part) {
    if (part) this.tainted.set(name, part);
    else this.tainted.delete(name);
    const row = this.rows.get(`node ${name}`);
    if (!row) return;
    row.node = part ?? PLAIN;
    this.dirty.add(row.id);
  }

  /** @param {string} key @param {any} part */
  putDevices(key, part) {
    const id = part.node ? `node ${part.node}` : `pool ${part.driver}/${part.pool}`;
    let row = this.rows.get(id);
    if (!row) {
      row = {
        id, name: part.node || part.pool, single: Boolean(part.node), parts: new Map(), devices: [], groups: [], models: "",
        node: this.tainted.get(part.node) ?? PLAIN, longest: 0, counts: none(), units: 0, free: 0, partly: 0, fill: 0,
      };
      this.rows.set(id, row);
      this.membership += 1;
      if (row.single) this.singles += 1;
    }
    row.parts.set(key, part);
    this.rowOf.set(key, id);
    this.recount(row);
  }

  /** @param {string} key */
  dropDevices(key) {
    const row = this.rows.get(this.rowOf.get(key) ?? "");
    this.rowOf.delete(key);
    if (!row) return;
    row.parts.delete(key);
    this.recount(row);
    if (!row.parts.size) {
      this.rows.delete(row.id);
      if (row.single) this.singles -= 1;
      this.membership += 1;
    }
  }

  /** @param {Row} row */
  recount(row) {
    this.add(row, -1);
    const parts = [...row.parts.values()].sort((a, b) => natural.compare(a.driver, b.driver) || natural.compare(a.pool, b.pool));
    row.groups = groupsOf(parts);
    row.devices = row.groups.flatMap((group) => group.devices);
    row.counts = none();
    row.units = row.free = row.partly = row.fill = row.longest = 0;
    /** @type {Map<string, number>} */
    const models = new Map();
    for (const device of row.devices) {
      row.counts[device.state] += 1;
      row.longest = Math.max(row.longest, device.name.length);
      if (device.set < 0 && device.model) models.set(device.model, (models.get(device.model) ?? 0) + 1);
    }
    for (const group of row.groups) {
      const model = group.title ? group.devices.find((device) => device.model)?.model : "";
      if (model) models.set(model, (models.get(model) ?? 0) + 1);
      const free = group.devices.filter((device) => device.state === "free").length;
      row.units += group.title ? 1 : group.devices.length;
      row.free += group.title ? Number(free > 0 && !group.fill) : free;
      row.partly += Number(Boolean(group.title) && free > 0 && group.fill > 0);
      row.fill += group.title ? group.fill : group.devices.reduce((fill, device) => fill + device.fill, 0);
    }
    row.models = [...models].map(([model, count]) => `${count} × ${model}`).join(", ");
    this.add(row, 1);
    this.dirty.add(row.id);
  }

  /** @param {Row} row @param {1 | -1} sign */
  add(row, sign) {
    for (const state of STATES) this.counts[state] += sign * row.counts[state];
    this.devices += sign * row.devices.length;
    this.units += sign * row.units;
    this.fill += sign * row.fill;
  }
}

/**
 * @param {any} part
 * @returns {Device[]}
 */
function devicesOf(part) {
  return part.devices.map((/** @type {any[]} */ [name, state, fill, classes, model, holders, claims, set = -1], /** @type {number} */ place) => ({
    driver: part.driver, pool: part.pool, name, state, fill, classes: part.classes[classes] ?? [], model: part.models?.[model] ?? "", holders, claims, set,
    problem: state === "unusable" ? part.problem : "", first: place === 0, words: "",
  }));
}

/**
 * @param {any[]} parts
 * @returns {Group[]}
 */
function groupsOf(parts) {
  /** @type {Group[]} */
  const found = [];
  const plain = { title: "", fill: 0, counters: [], devices: /** @type {Device[]} */ ([]) };
  for (const part of parts) {
    const devices = devicesOf(part);
    plain.devices.push(...devices.filter((device) => device.set < 0));
    (part.sets ?? []).forEach((/** @type {[string, number]} */ [title, fill], /** @type {number} */ set) => {
      const counters = part.counters.filter((/** @type {Amount} */ counter) => counter.name.startsWith(`${title}/`));
      found.push({ title, fill, counters, devices: devices.filter((device) => device.set === set).map((device) => ({ ...device, first: false })) });
    });
  }
  found.sort((a, b) => natural.compare(a.title, b.title));
  return plain.devices.length ? [plain, ...found] : found;
}
