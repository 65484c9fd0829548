// Documents of the daemon that are kept up to date while somebody watches them: by events where there are some, and
// by asking again, gently, where there are none.

import { open, link } from './api.js';
import { onEvent } from './events.js';
import { Store } from './store.js';

const GENTLE = 3000; // no listing is asked for more often
const PAUSES = 20; // and none for more than this part of the time, because a large one takes long

// Resource holds { data, at, error }. merge returns the data after an event, undefined if the event makes it out of
// date, or the same data if the event has nothing to do with it.
export class Resource extends Store {
  constructor(path, { every = 10000, merge = null } = {}) {
    super({ data: null, at: 0, error: null });
    Object.assign(this, { path, every, merge, etag: '', begun: 0, took: 0, busy: null, timer: 0, off: null });
  }

  watch(f) {
    if (this.watchers.size === 0) this.wake();
    const stop = super.watch(f);
    return () => {
      stop();
      if (this.watchers.size === 0) this.sleep();
    };
  }

  wake() {
    this.off = onEvent((batch) => this.events(batch));
    this.show = () => { if (!document.hidden) this.plan(0); };
    document.addEventListener('visibilitychange', this.show);
    this.offLink = link.watch(() => { if (link.value.ok && this.value.error) this.plan(0); });
    this.plan(0);
  }

  sleep() {
    this.off();
    this.offLink();
    document.removeEventListener('visibilitychange', this.show);
    clearTimeout(this.timer);
    this.busy?.abort();
    this.busy = null;
  }

  // soon asks again as soon as it is gentle.
  soon() { this.plan(0); }

  plan(wait) {
    clearTimeout(this.timer);
    const earliest = this.begun + Math.max(GENTLE, PAUSES * this.took) - Date.now();
    this.timer = setTimeout(() => this.load(), Math.max(wait, this.value.at ? earliest : 0));
  }

  async load() {
    if (document.hidden || this.busy) return;
    const mine = new AbortController();
    this.busy = mine;
    this.begun = Date.now();
    try {
      const resp = await open(this.path, { signal: mine.signal, head: this.etag ? { 'If-None-Match': this.etag } : {} });
      if (resp.status === 304) {
        this.set({ ...this.value, at: Date.now(), error: null });
      } else {
        const data = await resp.json();
        this.took = Date.now() - this.begun;
        this.etag = resp.headers.get('ETag') || '';
        if (this.busy === mine) this.set({ data: reuse(this.value.data, data), at: Date.now() - 1000 * (data.age || 0), error: null });
      }
    } catch (error) {
      if (this.busy === mine && error.name !== 'AbortError') this.set({ ...this.value, error });
    } finally {
      if (this.busy === mine) {
        this.busy = null;
        if (this.watchers.size) this.plan(this.every);
      }
    }
  }

  events(batch) {
    if (!this.merge || !this.value.data) return;
    let data = this.value.data;
    for (const e of batch) {
      const next = e.kind === 'gap' ? undefined : this.merge(data, e);
      if (next === undefined) {
        this.plan(0);
        break;
      }
      data = next;
    }
    if (data !== this.value.data) this.set({ ...this.value, data });
  }
}

// reuse returns a new document in which what has not changed is the old object, so that only what has changed is drawn.
export function reuse(old, now) {
  if (!old || !now || typeof old !== 'object' || typeof now !== 'object' || Array.isArray(old) !== Array.isArray(now)) return now;
  const keys = Object.keys(now);
  let same = keys.length === Object.keys(old).length;
  for (const k of keys) {
    if (old[k] === now[k]) continue;
    now[k] = reuse(old[k], now[k]);
    same &&= old[k] === now[k];
  }
  return same ? old : now;
}

// put returns a listing in which an item stands in the place of the one with the same key.
function put(list, item, key) {
  const i = list.items.findIndex((x) => x[key] === item[key]);
  if (i < 0) return undefined;
  const items = list.items.slice();
  items[i] = { ...items[i], ...item };
  return { ...list, items };
}

let told = false; // the daemon sends events of nodes, so that those of jobs say nothing new about them

function mergeNodes(list, e) {
  told ||= e.kind === 'node' || e.kind === 'gpu';
  if (e.kind === 'node') { // it comes without its GPUs, which have events of their own, and without what is measured
    const old = e.node && list.items.find((n) => n.id === e.node.id);
    return old ? put(list, { ...e.node, gpus: old.gpus, usage: old.usage }, 'id') : undefined;
  }
  if (e.kind === 'gpu') {
    const node = e.gpu && list.items.find((n) => n.id === e.gpu.node_id);
    const i = node ? node.gpus.findIndex((g) => g.uuid === e.gpu.uuid) : -1;
    if (i < 0) return undefined;
    const gpus = node.gpus.slice();
    gpus[i] = { ...gpus[i], ...e.gpu };
    return put(list, { ...node, gpus }, 'id');
  }
  return (e.kind === 'job' && !told) || e.kind === 'silent' ? undefined : list;
}

const changes = (...kinds) => (data, e) => (kinds.includes(e.kind) ? undefined : data);

export const nodes = new Resource('/v1/nodes', { merge: mergeNodes });
export const stats = new Resource('/v1/stats', { merge: changes('job', 'node', 'silent') });
export const users = new Resource('/v1/users', { merge: changes('job') });
export const peers = new Resource('/v1/peers', { merge: changes('node', 'member', 'silent') });
export const daemon = new Resource('/v1/daemon', { every: 60000 });
