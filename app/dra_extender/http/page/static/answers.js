// @ts-check
/** Answers that the page asks the service for again and again, one after the other: diagnoses, headroom, problems. */
import { Refused, ask } from "./session.js";

/** Milliseconds until a question is asked again, after a change and without one. */
const SOON = 1_000;
const LATE = 10_000;
/** The pause after an answer, at least: milliseconds, and how many times as long as the service took to answer. */
const PAUSE = 50;
const SHARE = 9;
/** Answers that are shown are asked for so many times as often as the others. */
const SHOWN = 10;

/**
 * The answer to one question. `at`: when it was asked last, or first wanted.
 * @typedef {{at: number, asked: boolean, change: number, weight: number, text: string, found: any}} Answer
 */

export class Answers {
  /** @param {(path: string) => void} answered  There is another answer to a question with this path. */
  constructor(answered) {
    this.answered = answered;
    /** Grows with every change of the cluster. */
    this.change = 0;
    /** By question: path and query. @type {Map<string, Answer>} */
    this.known = new Map();
    void this.run();
  }

  /** The last answer, or `{problem}`; undefined before the first. @param {string} question */
  get(question) {
    return this.known.get(question)?.found;
  }

  /** Ask for these only. @param {string[]} shown @param {string[]} others */
  want(shown, others) {
    const before = this.known;
    this.known = new Map();
    for (const question of [...shown, ...others]) {
      if (this.known.has(question)) continue;
      const known = before.get(question) ?? { at: performance.now(), asked: false, change: this.change, text: "", found: undefined };
      this.known.set(question, { ...known, weight: this.known.size < shown.length ? SHOWN : 1 });
    }
  }

  /** The question that is asked next; empty when none is due. */
  due() {
    const now = performance.now();
    let [first, longest] = ["", 0];
    for (const [question, { at, asked, change, weight }] of this.known) {
      const waited = asked || weight < SHOWN ? now - at : Infinity;
      if (waited >= (change === this.change ? LATE : SOON) && waited * weight > longest) [first, longest] = [question, waited * weight];
    }
    return first;
  }

  async run() {
    for (;;) {
      const started = performance.now();
      const question = document.hidden ? "" : this.due();
      if (question) await this.answer(question);
      await new Promise((resolve) => setTimeout(resolve, Math.max(PAUSE, SHARE * (performance.now() - started))));
    }
  }

  /** @param {string} question */
  async answer(question) {
    const known = this.known.get(question);
    if (!known) return;
    [known.at, known.asked, known.change] = [performance.now(), true, this.change];
    let text = known.text;
    try {
      text = await (await ask(question)).text();
    } catch (error) {
      // If the service cannot be reached, the last answer stays; the feed says that the page is not live.
      if (error instanceof Refused && error.status < 500) text = JSON.stringify({ problem: error.message });
    }
    const kept = this.known.get(question);
    if (!kept || kept.text === text) return;
    [kept.text, kept.found] = [text, JSON.parse(text)];
    this.answered(question.split("?")[0]);
  }
}
