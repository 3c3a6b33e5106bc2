// @ts-check
/** The states of a device, and what they mean. */

/** @typedef {"used" | "shared" | "free" | "blocked" | "tainted" | "unusable"} State */

/** @type {readonly State[]} In the order in which the page shows them. */
export const STATES = ["used", "shared", "free", "tainted", "blocked", "unusable"];

/** @type {Record<State, string>} */
export const MEANING = {
  used: "one claim is allocated the whole device",
  shared: "claims are allocated shares of it",
  free: "not allocated",
  tainted: "not allocated, and a taint keeps pods away",
  blocked: "not allocated, but other devices consume counters that it needs",
  unusable: "it cannot be allocated",
};
