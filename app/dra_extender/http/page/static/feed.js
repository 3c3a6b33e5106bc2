// @ts-check
/**
 * The feed: server-sent events, read with fetch because they need an Authorization header, which EventSource cannot send.
 * The service ends a connection after a minute; the next one resumes with the id of the last message.
 */
import { Refused, ask } from "./session.js";

const PAUSES = [0, 0.5, 1, 2, 4, 8, 15];
/** Seconds of silence after which a connection counts as lost; heartbeats come more often. */
const SILENCE = 30;
/** Seconds: a connection that ends sooner has failed, even if it received messages. */
const SHORT = 5;

/** The first request; index.html loads this module by itself, so it does not wait for the rest of the page. */
/** @type {ReturnType<typeof request> | null} */
let first = request("");

/** @typedef {"connecting" | "live" | "waiting" | "refused"} Live */
/**
 * @typedef {object} Listener
 * @property {(resumed: boolean, now: string) => void} hello
 * @property {(put: any[], drop: string[], behind: number) => void} parts
 * @property {(live: Live, detail: string) => void} live
 * @property {(refused: Refused) => Promise<void>} refused   Returns when the feed should connect again.
 */

/**
 * Connect again and again.
 * @param {Listener} listener
 */
export async function follow(listener) {
  let lastID = "";
  let failures = 0;
  for (;;) {
    let problem = "the connection was closed";
    const began = performance.now();
    try {
      const received = await read(listener, lastID, (id) => (lastID = id));
      if (received && performance.now() - began > 1000 * SHORT) failures = 0;
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        listener.live("refused", error.message);
        await listener.refused(error);
        failures = 0;
        continue;
      }
      problem = error instanceof Refused ? error.message : "the service cannot be reached";
      failures = Math.max(failures, 1);
    }
    const seconds = PAUSES[Math.min(failures, PAUSES.length - 1)] * (0.75 + Math.random() / 2);
    failures += 1;
    if (seconds) {
      listener.live("waiting", problem);
      await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    }
  }
}

/** Ask for the messages after this one. @param {string} lastID */
function request(lastID) {
  const abort = new AbortController();
  const headers = { Accept: "text/event-stream", ...(lastID ? { "Last-Event-ID": lastID } : {}) };
  const answer = ask("insight/events", { headers, signal: abort.signal, cache: "no-store" });
  answer.catch(() => {}); // who awaits it handles it
  return { abort, answer };
}

/**
 * One connection. True when it received a message.
 * @param {Listener} listener
 * @param {string} lastID
 * @param {(id: string) => void} remember
 */
async function read(listener, lastID, remember) {
  const { abort, answer: asked } = first ?? request(lastID);
  first = null;
  let silence = setTimeout(() => abort.abort(), 1000 * SILENCE);
  try {
    const answer = await asked;
    if (!answer.body) return false;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let received = false;
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      clearTimeout(silence);
      if (done) return received;
      silence = setTimeout(() => abort.abort(), 1000 * SILENCE);
      const events = (rest + value).split("\n\n");
      rest = events.pop() ?? "";
      for (const event of events) {
        received = take(event, listener, remember) || received;
      }
    }
  } finally {
    clearTimeout(silence);
    abort.abort();
  }
}

/**
 * One message. False for a heartbeat.
 * @param {string} text
 * @param {Listener} listener
 * @param {(id: string) => void} remember
 */
function take(text, listener, remember) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of text.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  if (!fields.data) return false;
  const data = JSON.parse(fields.data);
  if (fields.event === "hello") {
    listener.hello(data.resumed, data.now);
    listener.live("live", "");
  } else if (fields.event === "parts") {
    listener.parts(data.put, data.drop, data.behind);
  }
  if (fields.id) remember(fields.id);
  return true;
}
