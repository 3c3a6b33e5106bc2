// @ts-check
/** Where the rows of the grid are, in pixels. Rows are as high as their devices need; the style sheet agrees. */

/** @typedef {import("./model.js").Row} Row */

const GAP = 4;
const LINE = 32;
const PADDING = 10;
const HEAD = 38;
const NARROW_HEAD = 28;
/** A line with models or taints. */
const MORE = 18;
const MOST_LINES = 4;
/** The title of a group. */
const TITLE = 20;
const NARROW = 620;
const NAME = 210;
const SMALLEST = 58;
/** Devices that have room in a line, if their names are short. */
const EIGHT = 8;
/** A cell is as wide as this where there is room, and wider only for a longer name. */
const USUAL = 104;
const WIDEST = 170;
/** The width of most letters, at most. */
const LETTER = 7;

export class Layout {
  constructor() {
    this.room = 0;
    this.usual = SMALLEST;
    this.most = 0;
    this.narrow = false;
    /** @type {number[]} */
    this.tops = [];
    this.height = 0;
  }

  /** Changes when rows have to be made anew. */
  get key() {
    return [this.room, this.usual, this.narrow].join();
  }

  /** The width of a cell: its name can be read. @param {Row} row */
  cell(row) {
    return Math.min(this.room, Math.max(this.usual, Math.min(WIDEST, row.longest * LETTER + 14)));
  }

  /** How many letters a cell has room for. @param {Row} row */
  letters(row) {
    return Math.floor((this.cell(row) - 12) / LETTER);
  }

  /** How many cells a line has. @param {Row} row */
  perLine(row) {
    return Math.max(1, Math.floor((this.room + GAP) / (this.cell(row) + GAP)));
  }

  /** The lines of a row: the first device, and the one after the last. @param {Row} row @returns {[number, number][]} */
  lines(row) {
    const most = this.perLine(row);
    /** @type {[number, number][]} */
    const found = [];
    let end = 0;
    for (const { devices } of row.groups) {
      for (let start = 0; start < devices.length; start += most) found.push([end + start, end + Math.min(start + most, devices.length)]);
      end += devices.length;
    }
    return found.length ? found : [[0, 0]];
  }

  /**
   * @param {number} width
   * @param {Row[]} rows
   */
  measure(width, rows) {
    this.narrow = width < NARROW;
    this.most = rows.reduce((most, row) => Math.max(most, row.devices.length), 0);
    this.room = Math.max(SMALLEST, width - 24 - (this.narrow ? 0 : NAME + 16));
    this.usual = Math.max(SMALLEST, Math.min(USUAL, Math.floor((this.room + GAP) / Math.max(4, Math.min(EIGHT, this.most))) - GAP));
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
    const lines = this.lines(row).length * (LINE + GAP) - GAP + TITLE * row.groups.filter((group) => group.title).length;
    const more = MORE * (this.textLines(row.models) + this.textLines(row.node.taints.join(", ")));
    return 2 * PADDING + (this.narrow ? NARROW_HEAD + more + lines : Math.max(HEAD + more, lines));
  }

  /** How many lines a text beside the devices has, at most: models or taints. @param {string} text */
  textLines(text) {
    return Math.min(MOST_LINES, Math.ceil((text.length * LETTER) / (this.narrow ? this.room : NAME)));
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
