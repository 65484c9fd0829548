// Whose jobs hold GPUs: the documents of GPUs name jobs, and only those of jobs name users.

import { get, again } from './api.js';
import { onEvent } from './events.js';
import { Store } from './store.js';
import { running } from './states.js';

const PAGES = 10; // of 1,000 jobs
const AGAIN = 60000; // without events the list is loaded anew after this time

// Holders is a map from the ids of jobs that run to their users, which is kept up to date while somebody watches it.
class Holders extends Store {
  watch(f) {
    if (!this.watchers.size) {
      const ends = [onEvent((batch) => this.events(batch)), again((signal) => this.load(signal), AGAIN)];
      this.stop = () => ends.forEach((end) => end());
    }
    const off = super.watch(f);
    return () => {
      off();
      if (!this.watchers.size) this.stop();
    };
  }

  async load(signal) {
    const all = new Map();
    let cursor = '';
    try {
      for (let i = 0; i < PAGES; i++) {
        const list = await get(`/v1/jobs?state=STARTING,RUNNING,UNREACHABLE,COMPLETING&fields=id,user&limit=1000${cursor && '&cursor=' + encodeURIComponent(cursor)}`, { signal });
        for (const j of list.items) all.set(j.id, j.user);
        cursor = list.next;
        if (!cursor) break;
      }
      this.set(all);
    } catch { /* the map stays without users; the banner says why */ }
  }

  events(batch) {
    if (batch.some((e) => e.kind === 'gap')) return void this.load();
    let all = null;
    for (const e of batch) {
      if (e.kind !== 'job' || !e.job) continue;
      const has = this.value.has(e.id);
      if (running(e.job.state) === has) continue;
      all ||= new Map(this.value);
      if (has) all.delete(e.id);
      else all.set(e.id, e.job.user);
    }
    if (all) this.set(all);
  }
}

export const userOf = new Holders(new Map());
