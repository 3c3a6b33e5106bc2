// @ts-check
/** Where the rows of the grid are, in pixels. Rows are as high as their devices need; the style sheet agrees. */

/** @typedef {import("./model.js").Row} Row */

const GAP = 4;
const LINE = 32;
const PADDING = 10;
const HEAD = 38;
const NARROW_HEAD = 24;
const COUNTERS = 16;
const NARROW = 620;
const NAME = 210;
const SMALLEST = 26;
const WIDEST = 104;
/** Cells that are as wide as this have room for a name. */
const READABLE = 58;
/** The width of most letters, at most. */
const LETTER = 7;

export class Layout {
  constructor() {
    this.width = 0;
    this.cell = SMALLEST;
    this.perLine = 1;
    this.most = 0;
    this.narrow = false;
    /** @type {number[]} */
    this.tops = [];
    this.height = 0;
  }

  /** Changes when rows have to be made anew. */
  get key() {
    return [this.cell, this.perLine, this.narrow].join();
  }

  /** True when cells have room for text. */
  get text() {
    return this.cell >= READABLE;
  }

  /** How many letters a cell has room for. */
  get letters() {
    return Math.floor((this.cell - 12) / LETTER);
  }

  /**
   * @param {number} width
   * @param {Row[]} rows
   */
  measure(width, rows) {
    this.narrow = width < NARROW;
    this.most = rows.reduce((most, row) => Math.max(most, row.devices.length), 0);
    const room = Math.max(SMALLEST, width - 24 - (this.narrow ? 0 : NAME + 16));
    const usual = Math.max(4, this.most);
    this.cell = Math.max(SMALLEST, Math.min(WIDEST, Math.floor((room + GAP) / usual) - GAP));
    this.perLine = Math.max(1, Math.floor((room + GAP) / (this.cell + GAP)));
    if (this.cell < READABLE && this.most > this.perLine) {
      this.cell = SMALLEST;
      this.perLine = Math.max(1, Math.floor((room + GAP) / (this.cell + GAP)));
    }
    let top = 0;
    this.tops = rows.map((row) => {
      const here = top;
      top += this.heightOf(row);
      return here;
    });
    this.height = top;
  }

  /** @param {Row} row */
  heightOf(row) {
    const lines = Math.max(1, Math.ceil(row.devices.length / this.perLine)) * (LINE + GAP) - GAP;
    const counters = row.counters.length ? COUNTERS : 0;
    return 2 * PADDING + (this.narrow ? NARROW_HEAD + counters + lines : Math.max(HEAD + counters, lines));
  }

  /**
   * The rows between two heights: the first, and the one after the last.
   * @param {number} from
   * @param {number} to
   */
  range(from, to) {
    return [Math.max(0, this.place(from) - 1), Math.min(this.tops.length, this.place(to))];
  }

  /** How many rows begin above this height. @param {number} height */
  place(height) {
    let low = 0;
    let high = this.tops.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle] < height) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
