// @ts-check
/** Commands to copy. Names with special characters are quoted for the shell. */
import { element } from "./dom.js";

/** @param {string} word */
export function quoted(word) {
  return /^[A-Za-z0-9._/-]+$/.test(word) && !word.startsWith("-") ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/**
 * A text with a button that copies it.
 * @param {string} text
 * @param {string} [what]
 */
export function copyable(text, what = "Copy the command") {
  const button = element("button", { type: "button", class: "copy", "aria-label": `${what}: ${text.split("\n")[0]}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(code);
      button.textContent = "Marked";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  const words = text.includes("\n") ? [text] : text.split(" ").flatMap((word, place) => [place ? " " : "", element("span", { class: "word" }, word)]);
  const code = element("code", {}, ...words);
  return element("div", { class: "command" }, element("pre", {}, code), button);
}

/** @param {string} claim namespace/name */
export function claimCommand(claim) {
  const [namespace, name] = claim.split("/");
  return name ? `kubectl describe resourceclaim ${quoted(name)} -n ${quoted(namespace)}` : "";
}

/** @param {string} namespace @param {string} pod */
export function podCommand(namespace, pod) {
  return `kubectl describe pod ${quoted(pod)} -n ${quoted(namespace)}`;
}

/** @param {string} namespace @param {string} pod */
export function whyCommand(namespace, pod) {
  return `kubectl dra why ${quoted(pod)} -n ${quoted(namespace)}`;
}
