// The list of jobs that match a filter: pages of the listing, joined with the events that follow.

import { get, query } from './api.js';
import { onEvent } from './events.js';
import { Store } from './store.js';
import { running, tally, waiting } from './states.js';
import { compare, here } from './format.js';

const FIRST = 200;
const PAGE = 1000;
export const MOST = 20000; // jobs that a tab keeps

// gpusOf is how many GPUs a task holds. A share of one counts as such.
export const gpusOf = (r) => r?.gpus || r?.gpu_share || 0;

// gpusOfAll is how many GPUs the tasks of a job hold, or will hold when it starts.
export const gpusOfAll = (j) => j.gpus * Math.max(1, j.nodes || 1, tally(j.counts, (s) => running(s) || s === 'RESERVED'));

// clocks is by how many seconds the clocks of owners are ahead, by the last part of the ids of their jobs. Events do not have it.
const clocks = new Map();
const groupOf = (id) => id.slice(id.lastIndexOf('-') + 1);

// listed is slim of a job of a listing.
export function listed(j) {
  clocks.set(groupOf(j.id), j.clock_ahead);
  return slim(j);
}

// slim keeps of a job what lists show, so that 10,000 of them are small. Its times are by our clock.
export function slim(j) {
  const ahead = clocks.get(groupOf(j.id));
  const tasks = (j.tasks || []).filter((t) => !waiting(t.state)); // a task that waits again still names the node of its last attempt
  const nodes = [...new Set(tasks.map((t) => t.node).filter(Boolean))].sort(compare);
  return {
    id: j.id, name: j.name, user: j.user, state: j.state, reason: j.reason, detail: j.reason_detail, priority: j.priority, nodes: j.nodes, array: j.array,
    submitted: here(j.submitted_at, ahead), started: here(j.started_at, ahead), ended: here(j.ended_at, ahead), estimated: j.estimated_start, exit: j.exit_code,
    tasks: j.task_count, counts: j.counts, gpus: gpusOf(j.resources), cpus: j.resources?.cpus, on: nodes, onIDs: [...new Set(tasks.map((t) => t.node_id).filter(Boolean))],
  };
}

// matcher returns whether a job passes the filter, as the daemon decides it.
function matcher({ state, user, name }) {
  const states = state ? new Set(state.split(',')) : null;
  const glob = name ? new RegExp('^' + name.split('*').map((s) => s.replace(/[.+?^${}()|[\]\\]/g, '\\$&')).join('[^/]*') + '$', 's') : null;
  return (j) => (!states || states.has(j.state)) && (!user || j.user === user) && (!glob || glob.test(j.name));
}

// JobList holds { jobs, done, error, at }: jobs newest first, and whether there are more.
export class JobList extends Store {
  constructor(filter) {
    super({ jobs: [], done: false, error: null, at: 0, partial: [] });
    this.filter = filter;
    this.matches = matcher(filter);
    this.index = new Map();
    this.next = '';
    this.busy = false;
    this.again = 0;
  }

  start() {
    this.stop = onEvent((batch) => this.events(batch));
    this.more();
    return () => {
      this.stop();
      clearTimeout(this.again);
      this.abort?.abort();
    };
  }

  async more() {
    const v = this.value;
    if (this.busy || v.done || v.jobs.length >= MOST) return;
    await this.page(this.next, v.jobs.length ? PAGE : FIRST);
  }

  async page(cursor, limit) {
    this.busy = true;
    this.abort = new AbortController();
    try {
      const list = await get(query('/v1/jobs', { ...this.filter, limit, cursor }), { signal: this.abort.signal });
      this.next = list.next || '';
      const jobs = cursor ? this.value.jobs.slice() : [];
      if (!cursor) this.index.clear();
      for (const j of list.items) this.put(jobs, listed(j));
      this.set({ jobs, done: !list.next, error: null, at: Date.now(), partial: list.partial || [] });
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.set({ ...this.value, error });
        this.again = setTimeout(() => this.more(), 5000);
      }
    } finally {
      this.busy = false;
    }
  }

  put(jobs, j) {
    if (this.index.has(j.id)) jobs[this.index.get(j.id)] = j;
    else {
      this.index.set(j.id, jobs.length);
      jobs.push(j);
    }
  }

  // events applies changes. A job that is new stands at the top; one that no longer matches leaves.
  events(batch) {
    if (!this.value.at) return;
    if (batch.some((e) => e.kind === 'gap')) return void this.page('', Math.min(PAGE, Math.max(FIRST, this.value.jobs.length)));
    let jobs = null;
    let moved = false;
    let { done } = this.value;
    for (const e of batch) {
      const at = this.index.get(e.id);
      if (e.kind === 'gone' && at !== undefined) {
        (jobs ||= this.value.jobs.slice())[at] = null;
        moved = true;
      }
      if (e.kind !== 'job' || !e.job) continue;
      const j = slim(e.job);
      const fits = this.matches(j);
      if (at !== undefined) {
        (jobs ||= this.value.jobs.slice())[at] = fits ? j : null;
        moved ||= !fits;
      } else if (fits && this.isNew(j)) {
        (jobs ||= this.value.jobs.slice()).push(j);
        this.index.set(j.id, jobs.length - 1);
        moved = true;
      }
    }
    if (!jobs) return;
    if (moved) {
      jobs = jobs.filter(Boolean).sort((a, b) => (a.submitted < b.submitted ? 1 : a.submitted > b.submitted ? -1 : 0));
      done &&= jobs.length <= MOST;
      jobs = jobs.slice(0, MOST);
      this.index = new Map(jobs.map((j, i) => [j.id, i]));
    }
    this.set({ ...this.value, jobs, done, at: Date.now() });
  }

  // isNew reports whether a job belongs to the part of the list that is loaded.
  isNew(j) {
    const { jobs, done } = this.value;
    return done || !jobs.length || j.submitted >= jobs[jobs.length - 1].submitted;
  }
}
