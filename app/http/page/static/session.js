// @ts-check
/** Who reads: a bearer token where the service asks for one. It lives as long as the tab does. */
import { byId } from "./dom.js";

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
    return `the service answers ${answer.status}`;
  }
}

/**
 * Ask the person for a token. True when there is a new one.
 * @param {string} why
 * @returns {Promise<boolean>}
 */
export function signIn(why) {
  const dialog = byId("token");
  const input = byId("token-input");
  byId("token-why").textContent = why;
  input.value = "";
  byId("sign-in").hidden = false;
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    byId("token-form").onsubmit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const given = input.value.trim().replace(/^bearer +/i, "");
      sessionStorage.setItem(KEY, given);
      dialog.close("given");
    };
    byId("token-cancel").onclick = () => dialog.close("");
    dialog.onclose = () => {
      input.value = "";
      resolve(dialog.returnValue === "given");
      dialog.returnValue = "";
    };
  });
}
