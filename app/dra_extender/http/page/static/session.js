// @ts-check
/** The bearer token, if the service requires one. It is kept as long as the tab is open. */
import { byId, element, fill } from "./dom.js";

const KEY = "dra-extender token";

/** The service does not answer this reader. */
export class Refused extends Error {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** @returns {Record<string, string>} */
function credentials() {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/**
 * Ask the service. Raises Refused, and TypeError when it cannot be reached.
 * @param {string} path
 * @param {RequestInit} [options]
 */
export async function ask(path, options = {}) {
  const headers = { ...credentials(), ...options.headers };
  const answer = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error" });
  if (answer.ok) return answer;
  throw new Refused(answer.status, await detail(answer));
}

/** @param {Response} answer */
async function detail(answer) {
  try {
    return String((await answer.json()).detail);
  } catch {
    return `the service responded with status ${answer.status}`;
  }
}

const input = element("input", { id: "token-input", type: "password", autocomplete: "off", spellcheck: false, required: true });
const reason = element("p", { id: "token-why" });
const cancel = element("button", { type: "button", class: "quiet" }, "Not now");
const form = element("form", {},
  element("h2", { id: "token-title" }, "Sign in"),
  reason,
  element("label", {}, "Bearer token of a user of this cluster ", input),
  element("p", { class: "soft" },
    "For example, from ", element("code", {}, "kubectl create token NAME"), ", of an account with the ClusterRole ",
    element("code", {}, "dra-extender-insight-reader"),
    ". This tab keeps it until you close it, and sends it to this address only."),
  element("p", { class: "buttons" }, cancel, " ", element("button", { type: "submit" }, "Use this token")));
const dialog = element("dialog", { id: "token", "aria-labelledby": "token-title" }, form);

/**
 * Ask the person for a token. True when there is a new one.
 * @param {string} why
 * @returns {Promise<boolean>}
 */
export function signIn(why) {
  fill(reason, why);
  input.value = "";
  byId("sign-in").hidden = false;
  if (!dialog.isConnected) document.body.append(dialog);
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const given = input.value.trim().replace(/^bearer +/i, "");
      sessionStorage.setItem(KEY, given);
      dialog.close("given");
    };
    cancel.onclick = () => dialog.close("");
    dialog.onclose = () => {
      input.value = "";
      resolve(dialog.returnValue === "given");
      dialog.returnValue = "";
    };
  });
}
