// @ts-check
/**
 * Nodes × devices. Only the rows that can be seen are in the document, and the one that has the focus; a screen reader
 * hears of all of them by aria-rowcount and aria-rowindex. One cell is in the tab order, arrow keys move from there.
 */
import { bar, counted, element } from "./dom.js";
import { Layout } from "./layout.js";
import { MEANING } from "./states.js";

/** @typedef {import("./model.js").Row} Row */
/** @typedef {import("./model.js").Device} Device */

/** Pixels above and below what is seen. */
const MARGIN = 200;

/** How many rows were made: tests count it. */
export const work = { rows: 0 };

export class Grid {
  /**
   * @param {HTMLElement} scroller
   * @param {HTMLElement} grid
   * @param {(row: Row, device: Device) => void} open
   */
  constructor(scroller, grid, open) {
    this.scroller = scroller;
    this.grid = grid;
    this.open = open;
    this.layout = new Layout();
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Map<string, number>} */
    this.places = new Map();
    /** @type {Map<string, HTMLElement>} */
    this.made = new Map();
    /** @type {import("./filter.js").Test | null} */
    this.test = null;
    this.focus = { row: "", column: 0 };
    this.chosen = "";
    /** The cell on which a click has begun, and which one that is. */
    this.pressed = { cell: grid, where: "" };
    scroller.addEventListener("scroll", () => this.render(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(scroller);
    grid.addEventListener("keydown", (event) => this.key(event));
    grid.addEventListener("pointerdown", (event) => this.press(event));
    grid.addEventListener("pointerup", (event) => this.release(event));
    grid.addEventListener("click", (event) => this.click(event));
    grid.addEventListener("focusin", (event) => this.focused(event));
  }

  /**
   * Show these rows, of which `dirty` have changed.
   * @param {Row[]} rows
   * @param {Set<string>} dirty
   * @param {boolean} redraw  everything may look different
   */
  show(rows, dirty, redraw) {
    const had = this.hasFocus();
    this.rows = rows;
    this.places = new Map(rows.map((row, place) => [row.id, place]));
    if (!this.places.has(this.focus.row)) this.focus = { row: rows[0]?.id ?? "", column: 0 };
    this.layout.measure(this.scroller.clientWidth, rows);
    if (redraw) this.clear();
    for (const id of dirty) this.forget(id);
    this.grid.style.height = `${this.layout.height}px`;
    this.grid.setAttribute("aria-rowcount", String(rows.length));
    this.grid.setAttribute("aria-colcount", String(1 + this.layout.most));
    this.render();
    if (had) this.cell(this.focus.row, this.focus.column)?.focus({ preventScroll: true });
  }

  resize() {
    const before = this.layout.key;
    this.layout.measure(this.scroller.clientWidth, this.rows);
    if (this.layout.key !== before) this.show(this.rows, new Set(), true);
    else this.render();
  }

  clear() {
    for (const id of [...this.made.keys()]) this.forget(id);
  }

  /** @param {string} id */
  forget(id) {
    this.made.get(id)?.remove();
    this.made.delete(id);
  }

  render() {
    const top = this.scroller.scrollTop;
    const [first, last] = this.layout.range(top - MARGIN, top + this.scroller.clientHeight + MARGIN);
    /** @type {Set<string>} */
    const wanted = new Set();
    for (let place = first; place < last; place += 1) wanted.add(this.rows[place].id);
    if (this.focus.row) wanted.add(this.focus.row);
    for (const id of [...this.made.keys()]) if (!wanted.has(id)) this.forget(id);
    const places = [...wanted].map((id) => this.places.get(id) ?? 0).sort((a, b) => a - b);
    /** @type {Element | null} */
    let before = null;
    for (const place of places) {
      const row = this.rows[place];
      let shown = this.made.get(row.id);
      if (!shown) {
        shown = this.row(row, place);
        this.made.set(row.id, shown);
        if (before) before.after(shown);
        else this.grid.prepend(shown);
      } else if (shown.previousElementSibling !== before) {
        if (before) before.after(shown);
        else this.grid.prepend(shown);
      }
      shown.setAttribute("aria-rowindex", String(place + 1));
      shown.style.transform = `translateY(${this.layout.tops[place]}px)`;
      before = shown;
    }
  }

  /** @param {Row} row @param {number} place */
  row(row, place) {
    work.rows += 1;
    let column = 0;
    const cells = element("div", { class: "groups", role: "presentation" }, ...row.groups.flatMap((group) => {
      const made = element("div", { class: "cells", role: "presentation" }, ...group.devices.map((device) => this.device(row, device, column++)));
      made.style.gridTemplateColumns = `repeat(${this.layout.perLine(row)}, ${this.layout.cell(row)}px)`;
      return [group.title && title(group), made];
    }));
    const shown = element("div", { class: "row", role: "row", "data-row": row.id }, this.head(row), cells);
    shown.style.height = `${this.layout.heightOf(row)}px`;
    shown.classList.toggle("odd", place % 2 === 1);
    return shown;
  }

  /** @param {Row} row */
  head(row) {
    const meta = `${row.free} of ${row.units} free` + (row.partly ? `, ${row.partly} in part` : "");
    const taints = row.node.taints.join(", ");
    return element(
      "div",
      { class: "head", role: "rowheader", "aria-colindex": 1 },
      element("span", { class: "name", title: row.name }, row.name),
      element("span", { class: "meta" }, meta,
        !row.single && element("span", { class: "tag", title: "a pool whose devices are no single node's own" }, "pool"),
        row.node.cordoned && element("span", { class: "tag" }, "cordoned")),
      row.models && this.more("more", row.models, row.models),
      taints && this.more("more taint", taints, `Taints of the node: ${taints}`),
      element("span", { class: "unseen" }, row.groups.filter((group) => group.title).map((group) => `${group.title}: ${Math.round(group.fill)} percent taken`).join(", ")),
    );
  }

  /** @param {string} kind @param {string} text @param {string} title */
  more(kind, text, title) {
    const made = element("span", { class: kind, title }, text);
    made.style.height = `${18 * this.layout.textLines(text)}px`;
    return made;
  }

  /** @param {Row} row @param {Device} device @param {number} column */
  device(row, device, column) {
    const isFocus = row.id === this.focus.row && column === this.focus.column;
    const cell = element(
      "div",
      {
        class: `cell ${device.state}`,
        role: "gridcell",
        tabIndex: isFocus ? 0 : -1,
        title: tip(device),
        "aria-colindex": column + 2,
        "aria-label": spoken(device),
        "aria-selected": this.chosen === id(row, device),
        "data-column": column,
      },
      device.state === "shared" && level(device.fill),
      element("span", { class: "text", "aria-hidden": "true" }, label(device, this.layout.letters(row))),
    );
    if (device.first && column > 0) cell.classList.add("first");
    if (this.test && !this.test(row, device)) cell.classList.add("other");
    return cell;
  }

  // --- where the focus is

  hasFocus() {
    return this.grid.contains(document.activeElement);
  }

  /** @param {string} row @param {number} column @returns {HTMLElement | null} */
  cell(row, column) {
    return this.made.get(row)?.querySelector(`[data-column="${column}"]`) ?? null;
  }

  /**
   * Move the focus to a device, and what is seen with it.
   * @param {number} place
   * @param {number} column
   */
  go(place, column) {
    const row = this.rows[Math.max(0, Math.min(this.rows.length - 1, place))];
    if (!row) return;
    this.cell(this.focus.row, this.focus.column)?.setAttribute("tabindex", "-1");
    this.focus = { row: row.id, column: Math.max(0, Math.min(row.devices.length - 1, column)) };
    this.reveal(row);
    this.render();
    const cell = this.cell(row.id, this.focus.column);
    cell?.setAttribute("tabindex", "0");
    cell?.focus({ preventScroll: true });
  }

  /** @param {Row} row */
  reveal(row) {
    const top = this.layout.tops[this.places.get(row.id) ?? 0];
    const bottom = top + this.layout.heightOf(row);
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (bottom > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = bottom - this.scroller.clientHeight;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const place = this.places.get(this.focus.row);
    if (place === undefined || event.altKey || event.metaKey) return;
    const row = this.rows[place];
    const { column } = this.focus;
    const lines = this.layout.lines(row);
    const line = lines.findIndex(([, end]) => column < end);
    const across = column - lines[Math.max(0, line)][0];
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / Math.max(1, this.layout.heightOf(row))) - 1);
    const last = row.devices.length - 1;
    /** @type {Record<string, () => void>} */
    const moves = {
      ArrowRight: () => this.go(place, column + 1),
      ArrowLeft: () => this.go(place, column - 1),
      ArrowDown: () => (line + 1 < lines.length ? this.go(place, within(lines[line + 1], across)) : place + 1 < this.rows.length && this.go(place + 1, within(this.layout.lines(this.rows[place + 1])[0], across))),
      ArrowUp: () => (line > 0 ? this.go(place, within(lines[line - 1], across)) : place > 0 && this.go(place - 1, within(this.layout.lines(this.rows[place - 1]).slice(-1)[0], across))),
      Home: () => (event.ctrlKey ? this.go(0, 0) : this.go(place, 0)),
      End: () => (event.ctrlKey ? this.go(this.rows.length - 1, Infinity) : this.go(place, last)),
      PageDown: () => this.go(place + page, column),
      PageUp: () => this.go(place - page, column),
      Enter: () => this.choose(row, column),
      " ": () => this.choose(row, column),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  }

  /** @param {MouseEvent} event */
  click(event) {
    const found = this.at(event.target);
    if (found) {
      this.go(found.place, found.column);
      this.choose(this.rows[found.place], found.column);
    }
  }

  /** @param {PointerEvent} event */
  press(event) {
    const cell = event.button === 0 && event.target instanceof HTMLElement ? event.target : this.grid;
    this.pressed = { cell, where: this.where(this.at(cell)) };
  }

  /**
   * Open the device if its row was redrawn during the click: browsers send no click event when the element changes.
   * @param {PointerEvent} event
   */
  release(event) {
    const found = this.at(event.target);
    if (!found || this.pressed.cell.isConnected || this.where(found) !== this.pressed.where) return;
    this.go(found.place, found.column);
    this.choose(this.rows[found.place], found.column);
  }

  /** @param {{place: number, column: number} | null} found */
  where(found) {
    return found ? `${this.rows[found.place].id}\n${found.column}` : "";
  }

  /** @param {FocusEvent} event */
  focused(event) {
    const found = this.at(event.target);
    if (!found || (this.rows[found.place].id === this.focus.row && found.column === this.focus.column)) return;
    this.cell(this.focus.row, this.focus.column)?.setAttribute("tabindex", "-1");
    this.focus = { row: this.rows[found.place].id, column: found.column };
    this.cell(this.focus.row, this.focus.column)?.setAttribute("tabindex", "0");
  }

  /** @param {EventTarget | null} target */
  at(target) {
    const cell = target instanceof Element ? target.closest("[data-column]") : null;
    const row = cell?.closest("[data-row]");
    const place = this.places.get(row?.getAttribute("data-row") ?? "");
    return cell && place !== undefined ? { place, column: Number(cell.getAttribute("data-column")) } : null;
  }

  /** @param {Row} row @param {number} column */
  choose(row, column) {
    const device = row.devices[column];
    if (!device) return;
    this.mark(id(row, device));
    this.open(row, device);
  }

  /** Mark one device as the one whose details are shown. @param {string} chosen */
  mark(chosen) {
    this.chosen = chosen;
    for (const cell of this.grid.querySelectorAll("[aria-selected=true]")) cell.setAttribute("aria-selected", "false");
    if (chosen) this.cell(this.focus.row, this.focus.column)?.setAttribute("aria-selected", "true");
  }

  /** Back to the device that had the focus. */
  focusAgain() {
    const place = this.places.get(this.focus.row);
    if (place !== undefined) this.go(place, this.focus.column);
  }
}

/** @param {Row} row @param {Device} device */
function id(row, device) {
  return [row.id, device.driver, device.pool, device.name].join("\n");
}

/** The device of a line that is as far from its beginning. @param {[number, number]} line @param {number} across */
function within([start, end], across) {
  return Math.min(start + across, end - 1);
}

/** What is above the partitions of a GPU; a screen reader reads it with the name of the row. @param {import("./model.js").Group} group */
function title(group) {
  const taken = group.counters.map((counter) => `${counter.name}: ${counter.used} of ${counter.of} taken`).join("\n");
  return element("div", { class: "group-title", "aria-hidden": "true", title: taken },
    element("span", { class: "group-name" }, group.title), bar(group.fill), element("span", { class: "figure" }, `${Math.round(group.fill)}% taken`));
}

/** @param {number} percent */
function level(percent) {
  const made = element("span", { class: "fill", "aria-hidden": "true" });
  made.style.width = `${Math.max(4, Math.min(100, percent))}%`;
  return made;
}

/**
 * What there is room for: of a shared device how full it is, of a long name its end, which tells devices apart.
 * @param {Device} device
 * @param {number} letters
 */
function label(device, letters) {
  const full = device.state === "shared" ? `${Math.round(device.fill)}%` : "";
  if (full && device.name.length + 1 + full.length > letters) return full;
  if (full) return `${device.name} ${full}`;
  return device.name.length > letters ? `…${device.name.slice(1 - letters)}` : device.name;
}

/** @param {Device} device */
function held(device) {
  const more = device.holders - device.claims.length;
  return device.claims.join(", ") + (more > 0 ? ` and ${counted(more, "more claim")}` : "");
}

/** @param {Device} device */
function spoken(device) {
  const state = device.state === "shared" ? `shared, ${Math.round(device.fill)} percent taken` : device.state;
  return [`${device.name}, ${state}`, device.claims.length && `by ${held(device)}`].filter(Boolean).join(" ");
}

/** @param {Device} device */
function tip(device) {
  const state = device.state === "shared" ? `shared, ${device.fill}% taken` : `${device.state}: ${MEANING[device.state]}`;
  return [`${device.driver}/${device.pool}/${device.name}`, device.model, state, held(device), device.problem].filter(Boolean).join("\n");
}
