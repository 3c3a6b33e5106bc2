// @ts-check
/** The API of this address: every path with its parameters, from /openapi.json. */
import { byId, element, fill } from "./dom.js";
import { Refused, ask, signIn } from "./session.js";
import { theme } from "./theme.js";

/** @returns {Promise<any>} */
async function described() {
  for (;;) {
    try {
      return await (await ask("openapi.json")).json();
    } catch (error) {
      const given = error instanceof Refused && (error.status === 401 || error.status === 403) && (await signIn(error.message));
      if (!given) throw error;
    }
  }
}

/** @param {string} method @param {string} path @param {any} question */
function item(method, path, question) {
  const parameters = question.parameters ?? [];
  return element("li", { class: "card" },
    element("h2", {}, element("span", { class: "tag" }, method.toUpperCase()), " ", element("code", {}, path)),
    question.description && element("p", {}, question.description),
    parameters.length > 0 && element("dl", { class: "facts" }, ...parameters.map((/** @type {any} */ parameter) =>
      element("div", {},
        element("dt", {}, element("code", {}, parameter.name), parameter.required && element("span", { class: "tag" }, "required")),
        element("dd", {}, parameter.description ?? "")))));
}

theme();
byId("sign-in").addEventListener("click", () => location.reload());
try {
  const found = await described();
  const questions = Object.entries(found.paths).flatMap(([path, methods]) =>
    Object.entries(/** @type {any} */ (methods)).map(([method, question]) => item(method, path, question)));
  fill(byId("questions"), ...questions);
  fill(byId("problem"), "The schema of every response is at ", element("a", { href: "openapi.json" }, "/openapi.json"), ".");
} catch (error) {
  fill(byId("problem"), error instanceof Error ? error.message : String(error));
}
