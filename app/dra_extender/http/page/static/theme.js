// @ts-check
/** Dark or light: as in the system, unless the user chose here. */
import { byId } from "./dom.js";

const KEY = "dra-extender theme";

/** @returns {"dark" | "light"} */
function current() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "dark" || chosen === "light") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function theme() {
  const chosen = localStorage.getItem(KEY);
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  const button = byId("theme");
  const tell = () => button.setAttribute("aria-label", current() === "dark" ? "Light colours" : "Dark colours");
  button.addEventListener("click", () => {
    const next = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem(KEY, next);
    tell();
  });
  tell();
}
