// The output of a task, in bounded memory: a window of it is kept, which follows the end or lies anywhere else.

import { open } from './api.js';
import { Store } from './store.js';
import { Indexer } from './ansi.js';

export const WINDOW = 2 << 20; // bytes that are kept
const STEP = 256 << 10; // bytes that are loaded when a border of the window is reached
const PIECE = 256 << 10; // bytes that are read at once of what is followed
const SMALL = 32 << 10; // and of what is mostly less
const MOST_ROWS = 200000; // in the window, which may be all line breaks

// Log holds a window: bytes from start to end of a log of size bytes.
export class Log extends Store {
  constructor(job, task, stream, attempt) {
    super(0); // counts the changes
    Object.assign(this, { job, task, stream, attempt, buf: new Uint8Array(WINDOW + STEP), start: 0, end: 0, size: 0, eof: false, gap: 0, error: null, loading: false, live: false, dropped: 0, held: false });
    this.index = new Indexer(100);
    this.work = null;
  }

  // rows is how many rows the window has.
  get rows() { return this.index.count; }

  // place returns the offset in the log of a row.
  place(i) { return this.start + this.index.offsets[i]; }

  changed() { this.set(this.value + 1); }

  url(offset, follow) {
    const q = new URLSearchParams({ stream: this.stream, offset, marks: 'false' });
    if (follow) q.set('follow', 'true');
    if (this.attempt) {
      q.set('attempt', this.attempt);
      q.set('exact', 'true');
    }
    return `/v1/jobs/${encodeURIComponent(this.job)}/tasks/${this.task}/logs?${q}`;
  }

  // columns sets how many characters a row has.
  columns(n) {
    if (n === this.index.columns || n < 20) return;
    this.index = new Indexer(n);
    this.index.feed(this.buf, this.end - this.start, true);
    this.changed();
  }

  close() {
    this.work?.abort();
    this.work = null;
  }

  // begin makes the log do one thing: what it did before ends.
  begin() {
    this.close();
    this.work = new AbortController();
    this.error = null;
    this.loading = true;
    this.live = false;
    return this.work;
  }

  // read reads at most n bytes at an offset. The result says where they really begin: output may have been removed.
  async read(offset, n, signal) {
    const one = new AbortController();
    const end = () => one.abort();
    signal.addEventListener('abort', end);
    try {
      const resp = await open(this.url(offset, false), { signal: one.signal });
      const start = Number(resp.headers.get('Muster-Offset') || 0);
      let bytes = new Uint8Array(0);
      let got = 0;
      const pieces = new Pieces(resp.body, Math.min(n, SMALL));
      while (got < n) {
        const piece = await pieces.next();
        if (!piece) break;
        if (!got) bytes = new Uint8Array(n);
        const fits = piece.subarray(0, n - got);
        bytes.set(fits, got);
        got += fits.length;
      }
      return { start, bytes: bytes.subarray(0, got), short: got < n };
    } finally {
      signal.removeEventListener('abort', end);
      one.abort();
    }
  }

  // measure asks how long the log is.
  async measure(signal) {
    const { start, bytes } = await this.read(-1, 1, signal);
    this.size = Math.max(this.end, start + bytes.length);
  }

  // jump shows the log around an offset.
  async jump(offset) {
    const mine = this.begin();
    try {
      await this.measure(mine.signal);
      const from = Math.max(0, Math.min(offset, this.size) - STEP);
      const { start, bytes } = await this.read(from, 2 * STEP, mine.signal);
      if (this.work !== mine) return -1;
      this.replace(start, bytes, start > 0 && from > 0);
      return this.rowAt(offset);
    } catch (error) {
      this.failed(mine, error);
      return -1;
    } finally {
      this.settled(mine);
    }
  }

  replace(start, bytes, cut) {
    let skip = 0;
    if (cut) { // begin with a whole line, unless it is a very long one
      const nl = bytes.indexOf(10);
      if (nl >= 0 && nl < STEP) skip = nl + 1;
    }
    this.buf.set(bytes.subarray(skip), 0);
    this.start = start + skip;
    this.end = start + bytes.length;
    this.size = Math.max(this.size, this.end);
    this.index.reset(0);
    this.index.feed(this.buf, this.end - this.start, this.end >= this.size);
    this.dropped = 0;
    this.changed();
  }

  // more loads what follows the window, or with before what lies in front of it. It returns the rows that came in front.
  async more(before) {
    if (this.loading || this.live || (before ? this.start === 0 : this.end >= this.size)) return 0;
    const mine = this.begin();
    try {
      if (!before) {
        const { start, bytes } = await this.read(this.end, STEP, mine.signal);
        if (this.work !== mine) return 0;
        if (start > this.end) this.replace(start, bytes, false);
        else this.append(bytes);
        return 0;
      }
      const from = Math.max(0, this.start - STEP);
      const { start, bytes } = await this.read(from, this.start - from, mine.signal);
      if (this.work !== mine || start + bytes.length < this.start) return 0; // removed meanwhile
      const old = this.rows;
      const keep = Math.min(this.end - this.start, WINDOW - bytes.length);
      const both = new Uint8Array(bytes.length + keep);
      both.set(bytes, 0);
      both.set(this.buf.subarray(0, keep), bytes.length);
      const lost = this.end - this.start - keep;
      this.replace(start, both, from > 0);
      return lost ? this.rowAt(this.start + bytes.length) : this.rows - old;
    } catch (error) {
      this.failed(mine, error);
      return 0;
    } finally {
      this.settled(mine);
    }
  }

  // append adds bytes at the end, and forgets as many at the front.
  append(bytes) {
    if (bytes.length >= WINDOW) {
      const skip = bytes.length - WINDOW / 2;
      this.replace(this.end + skip, bytes.subarray(skip), true);
      return;
    }
    let used = this.end - this.start;
    if (used + bytes.length > WINDOW || this.rows > MOST_ROWS) {
      const by = Math.min(used, Math.max(used + bytes.length - WINDOW, used >> 1));
      this.buf.copyWithin(0, by, used);
      this.start += by;
      used -= by;
      this.dropped += this.index.shift(by);
      if (this.index.at < 0) this.index.reset(0);
    }
    this.buf.set(bytes, used);
    this.end += bytes.length;
    this.size = Math.max(this.size, this.end);
    this.index.feed(this.buf, used + bytes.length, false);
    this.changed();
  }

  // follow shows the end, and what is written from now on. It returns when the attempt has ended.
  async follow() {
    const mine = this.begin();
    try {
      if (this.end < this.size || this.end === 0) {
        await this.measure(mine.signal);
        const { start, bytes } = await this.read(Math.max(0, this.size - STEP), 2 * STEP, mine.signal);
        if (this.work !== mine) return false;
        this.replace(start, bytes, start > 0);
      }
      const resp = await open(this.url(this.end, true), { signal: mine.signal });
      this.eof = false;
      this.loading = false;
      this.live = true;
      const start = Number(resp.headers.get('Muster-Offset') || 0);
      if (start !== this.end) this.replace(start, new Uint8Array(0), false);
      this.changed();
      await this.pump(new Pieces(resp.body, PIECE), mine);
      if (this.work !== mine) return false;
      this.eof = true;
      this.index.feed(this.buf, this.end - this.start, true);
      return true;
    } catch (error) {
      this.failed(mine, error);
      return false;
    } finally {
      this.live = this.live && this.work !== mine;
      this.settled(mine);
    }
  }

  // pump adds what comes to the window, once a frame: more than a window in a frame is not looked at. All goes through one
  // buffer, because what a fast log leaves to the collector of garbage counts, too.
  async pump(pieces, mine) {
    const tail = new Tail(WINDOW);
    let frame = 0;
    const flush = () => {
      frame = 0;
      if (this.work !== mine) return;
      const { bytes, skipped } = tail.take();
      if (skipped) this.replace(this.end + skipped, bytes, true);
      else if (bytes.length) this.append(bytes);
    };
    for (;;) {
      const piece = await pieces.next();
      if (this.work !== mine) return;
      if (!piece) break;
      tail.add(piece);
      frame ||= requestAnimationFrame(flush);
    }
    cancelAnimationFrame(frame);
    flush();
  }

  failed(mine, error) {
    if (this.work === mine && error.name !== 'AbortError') this.error = error;
  }

  settled(mine) {
    if (this.work !== mine) return;
    this.loading = false;
    this.live = false;
    this.changed();
  }

  // rowAt returns the row that holds an offset.
  rowAt(offset) {
    const at = offset - this.start;
    let lo = 0;
    let hi = this.rows - 1;
    while (lo < hi) {
      const mid = (lo + hi + 1) >> 1;
      if (this.index.offsets[mid] <= at) lo = mid;
      else hi = mid - 1;
    }
    return lo;
  }

  // bounds returns the bytes of a row, without its line break.
  bounds(i) {
    const from = this.index.offsets[i];
    let to = i + 1 < this.rows ? this.index.offsets[i + 1] : this.end - this.start;
    const nl = this.buf.subarray(from, Math.min(to, from + 16384)).indexOf(10);
    if (nl >= 0) to = from + nl;
    return [from, Math.min(to, from + 16384)];
  }
}

// Pieces reads a body piece by piece, all into one buffer: a buffer for each piece of a fast log is more than is collected.
class Pieces {
  constructor(body, size) {
    try {
      this.reader = body.getReader({ mode: 'byob' });
      this.room = new Uint8Array(size);
    } catch { // a browser that cannot
      this.reader = body.getReader();
    }
  }

  // next returns a piece, which is good until the next call, or null at the end.
  async next() {
    const { done, value } = await (this.room ? this.reader.read(this.room) : this.reader.read());
    if (done) return null;
    if (this.room) this.room = new Uint8Array(value.buffer);
    return value;
  }
}

// Tail keeps the last bytes of what was added, at least half of its size.
export class Tail {
  constructor(size) { Object.assign(this, { buf: new Uint8Array(size), used: 0, skipped: 0 }); }

  add(bytes) {
    const over = Math.max(0, bytes.length - this.buf.length);
    if (this.used + bytes.length > this.buf.length) { // forget the older half, or more for a large piece
      const by = Math.min(this.used, Math.max(this.buf.length >> 1, this.used + bytes.length - this.buf.length));
      this.buf.copyWithin(0, by, this.used);
      this.used -= by;
      this.skipped += by + over;
    }
    this.buf.set(bytes.subarray(over), this.used);
    this.used += bytes.length - over;
  }

  // take returns what is kept, until the next call of add, and how many bytes in front of that are not.
  take() {
    const taken = { bytes: this.buf.subarray(0, this.used), skipped: this.skipped };
    this.used = this.skipped = 0;
    return taken;
  }
}
