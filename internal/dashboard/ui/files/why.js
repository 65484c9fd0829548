// Why a job waits: which of its requirements how many nodes meet. The submit form shows the same of a job that is not
// submitted yet.

import { html, useState, useEffect } from './lib.js';
import { get, again } from './api.js';
import { useStore } from './store.js';
import { place } from './router.js';
import { State, NodeLink, Failure, Empty, Bar } from './parts.js';
import { BARRING } from './states.js';
import { bytes, count, plain, plural, part, time } from './format.js';

export function WhyTab({ job }) {
  const { params } = useStore(place);
  const [e, setE] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const task = params.get('task');
    const path = `/v1/jobs/${encodeURIComponent(job.id)}/why${task ? '?tasks=' + encodeURIComponent(task) : ''}`;
    return again(async (signal) => {
      try {
        setE(await get(path, { signal }));
        setError(null);
      } catch (err) {
        if (!signal.aborted) setError(err);
      }
    }, 6000);
  }, [job.id, job.state, params.get('task')]);
  if (!e) return error ? html`<${Failure} error=${error} />` : html`<${Empty}>Asking…<//>`;
  const later = !job.started_at && Date.parse(job.begin_at) > Date.now() ? job.begin_at : '';
  return html`<p class="lead"><${State} of=${e.task_state || e.state} />${e.task !== undefined && e.task !== null ? ` task ${e.task}: ` : ' '}<b>${plain(e.reason)}</b>${e.reason_detail ? html` ${plain(e.reason_detail)}` : e.reason ? '' : 'Nothing keeps it.'}</p>
    ${e.ahead > 0 && html`<p>${plural(e.ahead, 'waiting task')} of the same owner go${e.ahead === 1 ? 'es' : ''} first.</p>`}${later && html`<p>It starts at ${time(later)} or later.</p>`}${e.estimated_start && html`<p>It should start by ${time(e.estimated_start)} at the latest.</p>`}
    <${Explanation} e=${e} />`;
}

// barred tells whether a job waits for something else than room.
function barred(e) {
  return (e.task_state || e.state) === 'HELD' || (e.state && BARRING.includes(e.reason));
}

export function Explanation({ e }) {
  return html`${e.clauses.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Requirements"><table class="plain clauses"><thead><tr><th scope="col">Requirement</th><th scope="col" class="n">Met by</th><th scope="col"><span class="sr">Share</span></th><th scope="col">Not met by</th></tr></thead><tbody>${e.clauses.map((c) => html`<tr><th scope="row">${c.meets === 0 ? html`<span class="bad">✕ </span>` : c.meets === c.of ? '✓ ' : '◐ '}${plain(c.clause)}</th><td class="n">${count(c.meets)} of ${count(c.of)}</td><td class="w"><${Bar} label=${`${c.meets} of ${c.of} nodes`} parts=${[['held', part(c.meets, c.of)]]} /></td><td class="grow">${(c.fails || []).map((f, i) => html`${i ? '; ' : ''}<${NodeLink} id=${f.node_id} name=${f.node} />: ${plain(f.reason)}`)}${c.of - c.meets > (c.fails || []).length ? (c.fails?.length ? ` and ${c.of - c.meets - c.fails.length} more` : plural(c.of - c.meets, 'node')) : ''}</td></tr>`)}</tbody></table></div>`}
    <${Candidates} title=${barred(e) ? 'Has room for it now' : 'Would take it now'} list=${e.now} /><${Candidates} title="Could take it once enough is free" list=${e.later} />
    ${e.nearest && html`<p>${e.nearest.ever ? 'No node could ever run it. One could' : 'No node would take it now. One would'} with ${[e.nearest.gpus !== undefined && plural(e.nearest.gpus, 'GPU'), e.nearest.cpus !== undefined && plural(e.nearest.cpus, 'CPU'), e.nearest.memory !== undefined && bytes(e.nearest.memory)].filter(Boolean).join(', or ')}.</p>`}`;
}

function Candidates({ title, list }) {
  if (!list.length) return null;
  return html`<h2>${title}: ${plural(list.length, 'node')}</h2><div class="scroll" tabindex="0" role="region" aria-label=${title + ': nodes'}><table class="plain"><tbody>${list.slice(0, 12).map((c) => html`<tr><td><${NodeLink} id=${c.node_id} name=${c.node} /></td><td>${c.free.gpus ? plural(c.free.gpus, 'GPU') + ', ' : ''}${plural(c.free.cpus, 'CPU')}, ${bytes(c.free.memory)} free</td><td class="grow">${plain(c.why)}</td></tr>`)}</tbody></table></div>${list.length > 12 && html`<p class="note">and ${list.length - 12} more</p>`}`;
}
