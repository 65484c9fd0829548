// The story of a job: what happened to it and to its tasks, oldest first, a page of tasks at a time.

import { html, useState, useEffect } from './lib.js';
import { get, query } from './api.js';
import { onEvent } from './events.js';
import { NodeLink, Empty, Failure, Name } from './parts.js';
import { plain, time, duration, plural, NONE, count } from './format.js';
import { JOB, ended } from './states.js';

const PAGE = 50; // tasks

// useStory is a page of the story, loaded anew after events of the job, at most every two seconds.
function useStory(id, cursor) {
  const [page, setPage] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let over = false;
    let timer = 0;
    const load = async () => {
      timer = 0;
      try {
        const l = await get(query(`/v1/jobs/${encodeURIComponent(id)}/events`, { cursor, limit: PAGE }));
        if (over) return;
        setPage(l);
        setError(null);
      } catch (e) {
        if (!over) setError(e);
      }
    };
    load();
    const stop = onEvent((batch) => {
      if (!timer && batch.some((e) => e.kind === 'gap' || e.id === id || e.task?.job === id)) timer = setTimeout(load, 2000);
    });
    return () => {
      over = true;
      clearTimeout(timer);
      stop();
    };
  }, [id, cursor]);
  return { page, error };
}

// what says what an event tells besides its time, task and state.
function what(e) {
  const why = e.reason ? html`: <${Name} of=${e.reason} />` : '';
  const n = e.attempt > 1 ? `attempt ${e.attempt} ` : '';
  const tasks = e.tasks ? ` (tasks ${plain(e.tasks)})` : '';
  switch (e.kind) {
    case 'submitted': return html`submitted by <${Name} of=${e.user} />`;
    case 'placed': return html`${n}placed on <${NodeLink} id=${e.node_id} name=${e.node} />`;
    case 'started': return html`${n}started on <${NodeLink} id=${e.node_id} name=${e.node} />`;
    case 'omitted': return html`${count(e.count)} more are not known any more${why}`;
    case 'ended': {
      const how = e.signal ? `, signal ${e.signal}` : e.exit_code !== undefined && e.exit_code !== null ? `, exit code ${e.exit_code}` : '';
      return html`${e.task === undefined ? 'the job has ended: ' : n ? `attempt ${e.attempt}: ` : ''}<b class=${signOf(e)[1]}>${plain(e.state)}</b>${how}${why}`;
    }
    default: return html`${plain(e.kind)}${tasks}${why}`;
  }
}

// SIGNS are the states that the signs of other events stand for.
const SIGNS = { submitted: 'PENDING', placed: 'RESERVED', started: 'RUNNING', held: 'HELD', released: 'PENDING', cancelled: 'CANCELLED', requeued: 'PREEMPTED' };
const signOf = (e) => JOB[e.state] || JOB[SIGNS[e.kind]] || ['·', 'wait'];

// waiting are the tasks that wait now, and why; the story has only what has happened. Tasks that wait for the same are one
// line.
function waiting(job) {
  const lines = new Map();
  for (const t of job.tasks || []) {
    if (ended(t.state) || !t.reason) continue;
    const why = `${plain(t.reason)}${t.reason_detail ? ': ' + plain(t.reason_detail) : ''}`;
    const line = lines.get(t.state + why);
    if (line) line.tasks++;
    else lines.set(t.state + why, { task: t.task, tasks: 1, state: t.state, now: why });
  }
  return [...lines.values()];
}

export function StoryTab({ job }) {
  const [at, setAt] = useState(['']); // the cursors of the pages before this one
  useEffect(() => { setAt(['']); }, [job.id]);
  const { page, error } = useStory(job.id, at[at.length - 1]);
  if (!page) return error ? html`<${Failure} error=${error} />` : html`<${Empty}>Loading…<//>`;
  const start = Date.parse(job.submitted_at);
  const rows = [...page.items, ...(page.next ? [] : waiting(job))];
  const several = job.task_count > 1;
  return html`<${Failure} error=${error} />
    ${at.length > 1 || page.next ? html`<div class="filter"><button type="button" disabled=${at.length < 2} onClick=${() => setAt(at.slice(0, -1))}>‹ Earlier</button><button type="button" disabled=${!page.next} onClick=${() => setAt([...at, page.next])}>Later ›</button><span class="note">${plural(job.task_count, 'task')}, a page of those that have been placed</span></div>` : ''}
    ${!rows.length ? html`<${Empty}>Nothing more has happened.<//>` : html`<ol class=${several ? 'story several' : 'story'}>${rows.map((e) => html`<${Line} e=${e} start=${start} several=${several} />`)}</ol>`}`;
}

// Line is one event: when, how long after the submit, its sign, of a job of several tasks the task, and what.
function Line({ e, start, several }) {
  const [sign, tone] = signOf(e);
  return html`<li><time datetime=${e.at || undefined} title=${e.at ? time(e.at) : ''}>${e.at ? time(e.at).slice(11) : e.now ? 'now' : NONE}</time><span class="n">${e.at ? '+' + duration(Math.max(0, (Date.parse(e.at) - start) / 1000)) : ''}</span><span class=${'state ' + tone}><i aria-hidden="true">${sign}</i></span>
    ${several && html`<span class="task">${e.tasks > 1 && e.now ? plural(e.tasks, 'task') : e.task === undefined ? '' : `task ${e.task}`}</span>`}<div>${e.now ? html`<b class=${tone}>${plain(e.state)}</b> ${e.now}` : what(e)}${e.stderr_tail ? html`<pre tabindex="0" role="region" aria-label="End of its errors">${tailOf(e.stderr_tail)}</pre>` : ''}</div></li>`;
}

// tailOf is output as text: without control sequences, line breaks kept.
const tailOf = (text) => text.replace(/\u001b(\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b\n]*(\u0007|\u001b\\)?|.)/g, '').split('\n').map(plain).join('\n');
