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
 * @property {number} taints
 * @property {number} holders
 * @property {string[]} claims   namespace/name of the first holders
 * @property {string} problem
 * @property {boolean} first   the first one of its pool
 * @property {string} words    the text that the filter searches
 *
 * @typedef {{name: string, used: string, of: string, percent: number}} Amount
 *
 * @typedef {object} Row
 * @property {string} id
 * @property {string} name
 * @property {boolean} single  the row is a node; false: a pool that belongs to no single node
 * @property {Map<string, any>} parts
 * @property {Device[]} devices
 * @property {Amount[]} counters
 * @property {Record<State, number>} counts
 * @property {number} fill
 */

const natural = new Intl.Collator("en", { numeric: true });

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
    this.fill = 0;
    /** Rows that are nodes. */
    this.singles = 0;
    /** @type {Map<string, any>} by UID */
    this.pods = new Map();
    /** @type {Map<string, any>} by UID */
    this.diagnoses = new Map();
    /** @type {Map<string, any>} by class */
    this.headroom = new Map();
    this.podsTotal = 0;
    this.problems = { total: 0, problems: [], known: false };
    this.nodes = { count: 0, cordoned: new Set() };
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
      case "devices": return this.putDevices(part.key, part.part);
      case "pod": this.pods.set(part.uid, part); return;
      case "diagnosis": this.diagnoses.set(part.uid, part); return;
      case "headroom": this.headroom.set(part.name, part); return;
      case "pods": this.podsTotal = part.total; return;
      case "problems": this.problems = { ...part, known: true }; return;
      case "nodes": this.putNodes(part); return;
      case "status": this.status = part; return;
    }
  }

  /** @param {string} key */
  drop(key) {
    const [kind, id] = key.split("\n", 2);
    this.changed.add(kind);
    if (kind === "pod") this.pods.delete(id);
    else if (kind === "diagnosis") this.diagnoses.delete(id);
    else if (kind === "headroom") this.headroom.delete(id);
    else if (kind === "devices") this.dropDevices(key);
  }

  /** The rows in this order. @param {string} order */
  sorted(order) {
    const rows = [...this.rows.values()];
    const byName = (/** @type {Row} */ a, /** @type {Row} */ b) => natural.compare(a.name, b.name);
    if (order === "free") return rows.sort((a, b) => b.counts.free - a.counts.free || a.fill - b.fill || byName(a, b));
    if (order === "full") return rows.sort((a, b) => b.fill - a.fill || a.counts.free - b.counts.free || byName(a, b));
    return rows.sort(byName);
  }

  /** @param {any} part */
  putNodes(part) {
    const cordoned = new Set(part.cordoned);
    for (const name of [...cordoned, ...this.nodes.cordoned]) {
      if (cordoned.has(name) !== this.nodes.cordoned.has(name)) this.dirty.add(`node ${name}`);
    }
    this.nodes = { count: part.count, cordoned };
  }

  /** @param {string} key @param {any} part */
  putDevices(key, part) {
    const id = part.node ? `node ${part.node}` : `pool ${part.driver}/${part.pool}`;
    let row = this.rows.get(id);
    if (!row) {
      row = {
        id, name: part.node || part.pool, single: Boolean(part.node), parts: new Map(), devices: [], counters: [], counts: none(), fill: 0,
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
    row.devices = parts.flatMap(devicesOf);
    row.counters = parts.flatMap((part) => part.counters);
    row.counts = none();
    row.fill = 0;
    for (const device of row.devices) {
      row.counts[device.state] += 1;
      row.fill += device.fill;
    }
    this.add(row, 1);
    this.dirty.add(row.id);
  }

  /** @param {Row} row @param {1 | -1} sign */
  add(row, sign) {
    for (const state of STATES) this.counts[state] += sign * row.counts[state];
    this.devices += sign * row.devices.length;
    this.fill += sign * row.fill;
  }
}

/**
 * @param {any} part
 * @returns {Device[]}
 */
function devicesOf(part) {
  return part.devices.map((/** @type {any[]} */ [name, state, fill, classes, taints, holders, claims], /** @type {number} */ place) => ({
    driver: part.driver, pool: part.pool, name, state, fill, classes: part.classes[classes] ?? [], taints, holders, claims,
    problem: state === "unusable" ? part.problem : "", first: place === 0, words: "",
  }));
}
