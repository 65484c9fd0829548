// The tasks of a job, a page at a time.

import { html, useState, useEffect } from './lib.js';
import { get, query } from './api.js';
import { onEvent } from './events.js';
import { useStore } from './store.js';
import { place, setParams, A } from './router.js';
import { State, Ran, NodeLink, Failure, Empty } from './parts.js';
import { count, here, plain, plural, NONE } from './format.js';
import { JOB, running } from './states.js';
import { gpusOf } from './joblist.js';

const PAGE = 100;

export function TasksTab({ job, requeue, cancel }) {
  const { params } = useStore(place);
  const state = params.get('state') || '';
  const [at, setAt] = useState(['']); // the cursors of the pages before this one
  const [page, setPage] = useState(null);
  const [error, setError] = useState(null);
  const cursor = at[at.length - 1];
  useEffect(() => { setAt(['']); }, [state]);
  useEffect(() => {
    let over = false;
    let timer = 0;
    const load = async () => {
      timer = 0;
      try {
        const l = await get(query(`/v1/jobs/${encodeURIComponent(job.id)}/tasks`, { state, cursor, limit: PAGE }));
        if (!over) {
          setPage(l);
          setError(null);
        }
      } catch (e) {
        if (!over) setError(e);
      }
    };
    load();
    const stop = onEvent((batch) => {
      if (!timer && batch.some((e) => e.kind === 'gap' || e.id === job.id)) timer = setTimeout(load, 2000);
    });
    return () => {
      over = true;
      clearTimeout(timer);
      stop();
    };
  }, [job.id, state, cursor]);
  const gang = job.nodes > 1;
  const array = Boolean(job.array);
  return html`<div class="filter"><select aria-label="State" value=${state} onChange=${(e) => setParams({ state: e.target.value })}><option value="">any state (${job.task_count})</option>${Object.keys(JOB).filter((s) => job.counts?.[s]).map((s) => html`<option value=${s}>${s} (${job.counts[s]})</option>`)}</select>
      <button type="button" disabled=${at.length < 2} onClick=${() => setAt(at.slice(0, -1))}>‹ Earlier</button><button type="button" disabled=${!page?.next} onClick=${() => setAt([...at, page.next])}>Later ›</button></div>
    <${Failure} error=${error} />
    ${!page ? html`<${Empty}>Loading…<//>` : !page.items.length ? html`<${Empty}>No task is in this state.<//>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Tasks"><table class="plain rows"><thead><tr><th scope="col">Task</th>${array && gang && html`<th scope="col">Index</th>`}${gang && html`<th scope="col">Rank</th>`}<th scope="col">State</th><th scope="col">Node</th><th scope="col" class="n">Attempt</th><th scope="col" class="n">Ran</th><th scope="col" class="n">Exit</th><th scope="col" class="n">GPUs</th><th scope="col">Reason</th><th scope="col"><span class="sr">Acts</span></th></tr></thead><tbody>${page.items.map((t) => html`<tr key=${t.task}><th scope="row"><${A} href=${`/jobs/${job.id}/log?task=${t.task}`}>${t.task}<//></th>${array && gang && html`<td>${t.index}</td>`}${gang && html`<td>${t.rank}</td>`}<td><${State} of=${t.state} /></td><td><${NodeLink} id=${t.node_id} name=${t.node} /></td><td class="n">${t.attempt || NONE}</td><td class="n">${t.started_at ? html`<${Ran} from=${here(t.started_at, job.clock_ahead)} to=${here(t.ended_at, job.clock_ahead)} />` : NONE}</td><td class="n">${t.signal ? `signal ${t.signal}` : t.exit_code ?? NONE}</td><td class="n" title=${t.gpus.map(plain).join('\n')}>${t.gpus.length ? count(job.resources?.gpus ? t.gpus.length : gpusOf(job.resources)) : ''}</td><td class="grow">${plain(t.reason)}${t.reason_detail ? html`<small>: ${plain(t.reason_detail)}</small>` : ''}</td><td class="n">${running(t.state) || t.state === 'PENDING' ? html`<button type="button" aria-label=${`Cancel task ${t.task}`} onClick=${() => cancel(t)}>Cancel…</button>` : html`<button type="button" aria-label=${`Run again task ${t.task}`} onClick=${() => requeue(t)}>Run again…</button>`}</td></tr>`)}</tbody></table></div><p class="note">${plural(page.items.length, 'task')} of ${job.task_count}</p>`}`;
}
