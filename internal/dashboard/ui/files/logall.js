// The output of several tasks as one: the end of each, then what each adds. It is asked for in turn, because a browser
// has only a few connections to a daemon.

import { visible } from './api.js';
import { Log } from './logdata.js';

const TAIL = 16 << 10;
const ROUND = 2000; // milliseconds between two rounds
export const MOST = 64; // tasks

// AllLog is a Log whose bytes come from several tasks; each line begins with the number of its task.
export class AllLog extends Log {
  constructor(job, tasks, stream) {
    super(job, tasks[0], stream, 0);
    this.parts = tasks.slice(0, MOST).map((t) => ({ log: new Log(job, t, stream, 0), at: -1, rest: new Uint8Array(0) }));
    this.all = true;
  }

  async jump() { return 0; }

  async more() { return 0; }

  // follow goes on until it is closed.
  async follow() {
    const mine = this.begin();
    while (this.work === mine) {
      for (const p of this.parts) {
        try {
          await this.part(p, mine);
        } catch (error) {
          if (this.work !== mine) return false;
          if (error.status !== 404 && error.status !== 409) this.error = error;
        }
        if (this.work !== mine) return false;
      }
      this.loading = false;
      this.live = true;
      this.changed();
      await new Promise((done) => setTimeout(done, ROUND));
      await visible();
    }
    return false;
  }

  // part adds the whole lines that are new in one task.
  async part(p, mine) {
    const first = p.at < 0;
    const { start, bytes } = await p.log.read(first ? -TAIL : p.at, TAIL * 8, mine.signal);
    if (this.work !== mine || (!bytes.length && !first)) return;
    let from = 0;
    if (first && start > 0) from = bytes.indexOf(10) + 1;
    const nl = bytes.lastIndexOf(10);
    const long = nl < from && bytes.length - from > 4096; // a long line goes on as a line of its own
    const to = long ? bytes.length : nl + 1;
    p.at = start + Math.max(from, to);
    if (to <= from) return;
    const head = new TextEncoder().encode(`\x1b[2m${p.log.task}| \x1b[0m`);
    const out = [];
    for (let i = from; i < to;) {
      let k = bytes.indexOf(10, i);
      if (k < 0 || k >= to) k = to - 1;
      out.push(...head);
      for (; i <= k; i++) out.push(bytes[i]);
    }
    if (long) out.push(10);
    this.append(Uint8Array.from(out));
  }
}
