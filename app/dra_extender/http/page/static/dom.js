// @ts-check
/** Elements. Values from the cluster are text, never markup. */

/**
 * The text with an escape sequence for each control or format character, so that it cannot reorder or hide what stands
 * around it. Line feeds stay.
 * @param {string} text
 */
export function printable(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, (found) => (found === "\n" ? found : `\\u${found.codePointAt(0)?.toString(16).padStart(4, "0")}`));
}

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An element with these properties and children. Properties that begin with "aria-" or "data-", and role, are
 * attributes; `on` has listeners by event.
 * @param {string} name
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {any}
 */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (key === "class") made.className = value;
    else if (key.includes("-") || key === "role" || key === "for") made.setAttribute(key, key.startsWith("aria-") ? printable(String(value)) : String(value));
    else made[key] = key === "title" ? printable(String(value)) : value;
  }
  fill(made, ...children);
  return made;
}

/**
 * Replace the children of an element.
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child || child === 0).map((child) => (child instanceof Node ? child : printable(String(child)))));
}

/**
 * The element with this id, which the page has.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * "1 node", "3 nodes".
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 */
export function counted(number, noun, plural) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : (plural ?? `${noun}s`)}`;
}

/**
 * A level as a bar; what it says has to stand beside it as text.
 * @param {number} percent
 * @param {string} [kind]
 */
export function bar(percent, kind = "") {
  const inner = element("span");
  inner.style.width = `${Math.max(0, Math.min(100, percent))}%`;
  return element("span", { class: `level ${kind}`, "aria-hidden": "true" }, inner);
}

/**
 * How long ago, in the words of kubectl.
 * @param {number} seconds
 */
export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 7200) return `${Math.floor(whole / 60)}m`;
  if (whole < 172800) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86400)}d`;
}
