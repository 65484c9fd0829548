// Requests to the daemon, and the one place that knows whether it answers.

import { headers, atDoor } from './session.js';
import { Store } from './store.js';
import { plain } from './format.js';

// link says whether the daemon answers: since when it does not, and whether it refuses this tab.
export const link = new Store({ ok: true, since: 0, refused: false, detail: '' });

// Problem is an answer that is not a success, with the words of the daemon.
export class Problem extends Error {
  constructor(status, doc) {
    super(doc.detail || doc.title || 'status ' + status);
    this.status = status;
    this.code = doc.code || '';
    this.errors = doc.errors || [];
    this.explanation = doc.explanation;
  }
}

// open sends a request and returns the answer once its head is there.
export async function open(path, { method = 'GET', body, head = {}, signal } = {}) {
  let resp;
  try {
    resp = await fetch(path, {
      method, signal, cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer',
      headers: { ...headers(), ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...head },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (err) {
    if (err.name !== 'AbortError') lost('it cannot be reached');
    throw err;
  }
  if (resp.ok || resp.status === 304) {
    found();
    return resp;
  }
  const doc = await resp.json().catch(() => ({}));
  if (resp.status === 401) link.set({ ok: true, since: 0, refused: true, door: atDoor(resp), detail: doc.detail || '' });
  else if (resp.status === 502 || resp.status === 504 || (resp.status === 503 && !doc.code)) lost(doc.detail ? plain(doc.detail) : 'it answers with status ' + resp.status);
  else found();
  throw new Problem(resp.status, doc);
}

// get returns a document.
export async function get(path, options) { return (await open(path, options)).json(); }

// post sends a change and returns the answer, if it has one.
export async function post(path, body = {}, head) {
  const resp = await open(path, { method: 'POST', body, head });
  return resp.status === 204 ? null : resp.json();
}

// lost notes that the daemon does not answer.
export function lost(detail) {
  if (link.value.ok) link.set({ ok: false, since: Date.now(), refused: false, detail });
}

function found() {
  if (!link.value.ok || link.value.refused) link.set({ ok: true, since: 0, refused: false, detail: '' });
}

// visible waits until the tab is seen.
export async function visible() {
  while (document.hidden) await new Promise((done) => document.addEventListener('visibilitychange', done, { once: true }));
}

// again calls ask at once, and then after each pause in milliseconds while the tab is visible, until the returned function
// is called. ask gets a signal that tells it of that.
export function again(ask, pause) {
  const end = new AbortController();
  (async () => {
    while (!end.signal.aborted) {
      await ask(end.signal);
      await new Promise((done) => setTimeout(done, pause));
      await visible();
    }
  })();
  return () => end.abort();
}

// query returns a path with the parameters that have a value.
export function query(path, params) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) if (v !== '' && v !== undefined && v !== null && v !== false) q.set(k, v);
  const text = q.toString();
  return text ? path + '?' + text : path;
}
