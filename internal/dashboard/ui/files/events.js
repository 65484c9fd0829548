// The stream of events: one in a visible tab, none in a hidden one. EventSource cannot send headers, so the stream is
// read with fetch.

import { open, lost } from './api.js';
import { Store } from './store.js';

const SILENCE = 25000; // the daemon shows every 10 s that the stream is alive
const WAITS = [500, 1000, 2000, 4000, 5000];

const listeners = new Set();
let current = null; // the AbortController of the open stream
let lastID = '';
let before = false; // a stream was open before this one

// stream is 'open', 'opening' or 'closed'.
export const stream = new Store('closed');

// onEvent calls f with batches of events, until the returned function is called. A batch that begins with an event of
// the kind gap means: load everything again.
export function onEvent(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}

// start keeps the stream open while the tab is visible.
export function start() {
  const check = () => {
    if (document.hidden) stop();
    else if (!current) run();
  };
  document.addEventListener('visibilitychange', check);
  addEventListener('pagehide', stop);
  addEventListener('pageshow', check);
  check();
}

function stop() {
  current?.abort();
  current = null;
  stream.set('closed');
}

async function run() {
  const mine = new AbortController();
  current = mine;
  for (let tries = 0; current === mine; tries++) {
    stream.set('opening');
    try {
      await follow(mine.signal, () => { tries = 0; });
    } catch (err) {
      if (current === mine && err.name !== 'AbortError' && !err.status) lost('it cannot be reached');
    }
    if (current !== mine) return;
    stream.set('opening');
    await new Promise((done) => setTimeout(done, WAITS[Math.min(tries, WAITS.length - 1)]));
  }
}

// follow reads one stream to its end.
async function follow(signal, opened) {
  const one = new AbortController();
  const end = () => one.abort();
  signal.addEventListener('abort', end);
  let watchdog = setTimeout(end, SILENCE);
  try {
    const resp = await open('/v1/events', { signal: one.signal, head: lastID ? { 'Last-Event-ID': lastID } : {} });
    const missed = before && lastID === ''; // without ids the daemon cannot say what was missed
    before = true;
    stream.set('open');
    opened();
    if (missed) deliver([{ kind: 'gap' }]);
    const parser = new Parser((e) => batches.add(e));
    const text = new TextDecoder();
    const reader = resp.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(end, SILENCE);
      parser.feed(text.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener('abort', end);
  }
}

// Parser cuts a text stream into events, as the standard of server-sent events says.
export class Parser {
  constructor(each) {
    this.each = each;
    this.rest = '';
    this.data = [];
    this.kind = '';
  }

  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === '') {
      if (this.data.length) this.end();
      this.data = [];
      this.kind = '';
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.kind = value;
    else if (field === 'id') lastID = value;
  }

  end() {
    let event;
    try {
      event = JSON.parse(this.data.join('\n'));
    } catch {
      return; // not ours
    }
    event.kind ||= this.kind;
    this.each(event);
  }
}

const SHARE = 10; // drawing takes about one part of so many of the time

// Batches gives out events in batches. An event after a quiet time is drawn at once. The pause after that is as long as the
// drawing was dear, but within bounds, in milliseconds: a large page draws 50 changes a second 5 times a second.
export class Batches {
  constructor(each, most, least = most) {
    Object.assign(this, { each, most, least, waiting: [], timer: 0, last: -Infinity, took: 0 });
  }

  add(event) {
    this.waiting.push(event);
    const pause = Math.min(this.most, Math.max(this.least, SHARE * this.took));
    this.timer ||= setTimeout(() => this.give(), Math.max(0, this.last + pause - performance.now()));
  }

  give() {
    const batch = this.waiting;
    [this.timer, this.waiting, this.last] = [0, [], performance.now()];
    this.each(batch);
    setTimeout(() => { this.took = performance.now() - this.last; }); // after what this task and its promises draw
  }
}

const batches = new Batches(deliver, 200, 50);

function deliver(batch) { for (const f of [...listeners]) f(batch); }
