// @ts-check
/** Problems of the cluster, and what to do: conflicts first, because a device is allocated twice. */
import { byId, element, fill } from "./dom.js";

/** Problems that are shown. */
const MOST = 200;

const KINDS = [
  ["conflict", "Conflicts"],
  ["permission", "Permissions"],
  ["unfinished", "Rollback not finished"],
  ["object", "Unusable objects"],
];

/** What the service is asked. */
export const PROBLEMS_QUESTION = "insight/problems";

/** @param {import("./answers.js").Answers} answers */
export function showProblems(answers) {
  const found = answers.get(PROBLEMS_QUESTION);
  const { total = 0, problems: all = [], problem: refused = "" } = found ?? {};
  const problems = all.slice(0, MOST);
  const pane = byId("problems");
  const title = element("h2", { id: "problems-title" }, total ? `Problems (${total.toLocaleString("en")})` : "Problems");
  if (!total) {
    fill(pane, title, element("p", { class: "soft" }, refused || (found ? "None: no conflict, no unusable object, no missing permission." : "Checking …")));
    return;
  }
  fill(
    pane,
    title,
    ...KINDS.flatMap(([kind, words]) => {
      const found = problems.filter((/** @type {any} */ problem) => problem.kind === kind);
      return found.length ? [element("h3", {}, words), element("ul", { class: `problems ${kind}` }, ...found.map(item))] : [];
    }),
    total > problems.length && element("p", { class: "soft" }, `The first ${problems.length} are shown.`),
  );
}

/** @param {any} problem */
function item(problem) {
  return element("li", {}, element("b", {}, problem.object), element("p", {}, problem.problem), element("p", { class: "soft" }, problem.what_to_do));
}
