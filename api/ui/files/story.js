// The story of a job: what happened to it and to its tasks, oldest first, a page of tasks at a time.

import { html, useState, useEffect } from './lib.js';
import { get, query } from './api.js';
import { onEvent } from './events.js';
import { State, NodeLink, Empty, Failure, Name } from './parts.js';
import { plain, time, duration, plural, NONE, count } from './format.js';
import { ended } from './states.js';

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
      return html`${e.task === undefined ? 'the job has ended' : `${n}ended`}${how}${why}`;
    }
    default: return html`${plain(e.kind)}${tasks}${why}`;
  }
}

// waiting are the tasks that wait now, and why; the story has only what has happened.
function waiting(job) {
  return (job.tasks || []).filter((t) => !ended(t.state) && t.reason).map((t) => ({ task: t.task, state: t.state, now: `${plain(t.reason)}${t.reason_detail ? ': ' + plain(t.reason_detail) : ''}` }));
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
    ${!rows.length ? html`<${Empty}>Nothing more has happened.<//>` : html`<ol class="story">${rows.map((e) => html`<li><time datetime=${e.at || undefined} title=${e.at ? time(e.at) : ''}>${e.at ? time(e.at).slice(11) : e.now ? 'now' : NONE}</time><span class="n">${e.at ? '+' + duration(Math.max(0, (Date.parse(e.at) - start) / 1000)) : NONE}</span><div>${several && e.task !== undefined ? html`<b>task ${e.task}</b> ` : ''}${e.state ? html`<${State} of=${e.state} /> ` : ''}${e.now || what(e)}${e.stderr_tail ? html`<pre tabindex="0" role="region" aria-label="End of its errors">${tailOf(e.stderr_tail)}</pre>` : ''}</div></li>`)}</ol>`}`;
}

// tailOf is output as text: without control sequences, line breaks kept.
const tailOf = (text) => text.replace(/\u001b(\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b\n]*(\u0007|\u001b\\)?|.)/g, '').split('\n').map(plain).join('\n');
