// @ts-check
/** The states a device can be in, and their words. */

/** @typedef {"used" | "shared" | "free" | "blocked" | "tainted" | "unusable"} State */

/** @type {readonly State[]} In the order in which the page shows them. */
export const STATES = ["used", "shared", "free", "tainted", "blocked", "unusable"];

/** @type {Record<State, string>} */
export const MEANING = {
  used: "a claim has it alone",
  shared: "claims have shares of it",
  free: "nobody has it",
  tainted: "nobody has it, and a taint keeps pods away",
  blocked: "nobody has it, but others have taken counters that it needs",
  unusable: "nothing can be allocated of it",
};
