// The files of a task. The daemon sends them as a tar archive, which is read as it comes: for the list only the heads of
// the files are looked at, and a file that is saved is the only one that is kept.

import { html, useState, useRef, useEffect } from './lib.js';
import { open } from './api.js';
import { useStore } from './store.js';
import { place, setParams } from './router.js';
import { Failure, Empty, Copy } from './parts.js';
import { bytes, plain, plural } from './format.js';

const MOST_FILES = 2000;
const MOST_READ = 1 << 30; // bytes that a list reads at most
const MOST_SAVED = 1 << 30; // bytes that a tab can save; the command line has no limit

const text = new TextDecoder();
const field = (b, at, n) => text.decode(b.subarray(at, at + n)).replace(/\0[^]*$/, '');

// size reads a number of a tar head: octal, or for large files binary.
function size(b) {
  if (b[124] & 0x80) return b.subarray(125, 136).reduce((n, x) => n * 256 + x, 0);
  return parseInt(field(b, 124, 12).trim() || '0', 8);
}

// entries reads an archive. each is called with a file's head and may return a function that gets its bytes. It returns
// false if it stopped before the end.
export async function entries(reader, each, more = () => true) {
  let have = new Uint8Array(0);
  let long = '';
  const fill = async (n) => {
    const parts = [have];
    let got = have.length;
    while (got < n) {
      const { done, value } = await reader.read();
      if (done) return false;
      parts.push(value);
      got += value.length;
    }
    const all = new Uint8Array(got);
    let at = 0;
    for (const p of parts) {
      all.set(p, at);
      at += p.length;
    }
    have = all;
    return true;
  };
  const pass = async (n, take) => {
    while (n > 0) {
      if (!have.length && !(await fill(1))) return false;
      const k = Math.min(n, have.length);
      take?.(have.slice(0, k));
      have = have.subarray(k);
      n -= k;
    }
    return true;
  };
  while (await fill(512)) {
    const head = have.slice(0, 512);
    have = have.subarray(512);
    if (head.every((x) => x === 0)) return true;
    const n = size(head);
    const kind = String.fromCharCode(head[156] || 48);
    const padding = (512 - (n % 512)) % 512;
    const prefix = field(head, 345, 155);
    const name = long || (prefix ? prefix + '/' : '') + field(head, 0, 100);
    let take = null;
    const extra = [];
    if (kind === 'x' || kind === 'L') {
      if (n > 1 << 20) return false;
      take = (b) => extra.push(...b);
    } else {
      long = '';
      if (!more()) return false;
      take = each({ name, size: n, kind, time: parseInt(field(head, 136, 12), 8) || 0 });
    }
    if (!(await pass(n, take)) || !(await pass(padding))) return false;
    if (kind === 'L') long = field(Uint8Array.from(extra), 0, extra.length);
    if (kind === 'x') long = pax(text.decode(Uint8Array.from(extra))) || long;
  }
  return false;
}

// pax returns the path of an extended head.
function pax(records) {
  for (const line of records.split('\n')) {
    const m = /^\d+ path=(.*)$/.exec(line);
    if (m) return m[1];
  }
  return '';
}

export function FilesTab({ job }) {
  const { params } = useStore(place);
  const task = Number(params.get('task')) || 0;
  const [glob, setGlob] = useState(job.spec?.download?.length ? '' : '**');
  const [list, setList] = useState(null);
  const [error, setError] = useState(null);
  const work = useRef(null);
  useEffect(() => () => work.current?.abort(), []);
  const url = (path) => `/v1/jobs/${encodeURIComponent(job.id)}/tasks/${task}/files${path ? '?path=' + encodeURIComponent(path) : ''}`;
  const load = async (e) => {
    e?.preventDefault();
    work.current?.abort();
    const mine = new AbortController();
    work.current = mine;
    setError(null);
    setList({ files: [], busy: true });
    const files = [];
    let read = 0;
    try {
      const resp = await open(url(glob.trim()), { signal: mine.signal });
      const whole = await entries(resp.body.getReader(), (f) => {
        read += f.size;
        if (f.kind === '0') files.push(f);
        if (files.length % 50 === 0) setList({ files: files.slice(), busy: true });
      }, () => files.length < MOST_FILES && read < MOST_READ);
      setList({ files, busy: false, whole });
    } catch (err) {
      if (err.name === 'AbortError') return;
      setList(null);
      setError(err);
    } finally {
      mine.abort();
    }
  };
  return html`<form class="filter" onSubmit=${load}>${job.task_count > 1 && html`<label class="inline">Task <input type="text" inputmode="numeric" size="6" value=${task} onChange=${(e) => setParams({ task: e.target.value.trim() })} /></label>`}
      <input type="text" data-filter aria-label="Path or pattern" placeholder=${job.spec?.download?.length ? 'what the job keeps' : 'path or pattern, such as *.txt or **'} value=${glob} onInput=${(e) => setGlob(e.target.value)} /><button type="submit" class="main">List</button><${Copy} label="Copy command" text=${`muster cp ${job.id}${job.task_count > 1 ? '.' + task : ''}:'${(glob || '*').replaceAll("'", '')}' .`} /></form>
    <p class="note">While the task runs, these are the files in its directory; afterwards, those that its job asked to keep.</p>
    <${Failure} error=${error} />
    ${list && html`<table class="plain rows"><thead><tr><th scope="col">File</th><th scope="col" class="n">Size</th><th scope="col"></th></tr></thead><tbody>${list.files.map((f) => html`<tr key=${f.name}><th scope="row"><code class="wrap">${plain(f.name)}</code></th><td class="n">${bytes(f.size)}</td><td class="grow"><${Save} url=${url(escaped(f.name))} file=${f} /></td></tr>`)}</tbody></table>
      ${list.busy ? html`<${Empty}>Reading…<//>` : html`<p class="note">${plural(list.files.length, 'file')}${list.whole ? '' : '; the list is not complete: narrow the pattern'}</p>`}`}`;
}

// escaped is a name as a pattern that matches only it.
const escaped = (name) => name.replace(/[*?[\]{}\\]/g, '\\$&');

function Save({ url, file }) {
  const [state, setState] = useState('');
  const save = async () => {
    setState('reading…');
    const parts = [];
    try {
      const resp = await open(url);
      await entries(resp.body.getReader(), (f) => (f.kind === '0' && !parts.length ? (b) => { parts.push(b); } : undefined));
      const a = document.createElement('a');
      a.href = URL.createObjectURL(new Blob(parts, { type: 'application/octet-stream' }));
      a.download = plain(file.name.split('/').pop()) || 'file';
      a.click();
      setTimeout(() => URL.revokeObjectURL(a.href), 10000);
      setState('saved');
    } catch (err) {
      setState(plain(err.message));
    }
  };
  if (file.size > MOST_SAVED) return html`<span class="note">too large for a browser: use muster cp</span>`;
  return html`<button type="button" aria-label=${`Save ${plain(file.name)}`} onClick=${save}>Save</button> <span role="status" class="note">${state}</span>`;
}
