// The page of one job: its head, what can be done with it, and its parts as tabs.

import { html, useState, useEffect, useRef } from './lib.js';
import { get, post, link } from './api.js';
import { onEvent } from './events.js';
import { ask, act } from './dialog.js';
import { A } from './router.js';
import { Head, State, Ago, Ran, Name, Facts, Failure, Empty, NodeLink } from './parts.js';
import { bytes, count, duration, here, known, part, percent, plain, plural, time, compare, NONE } from './format.js';
import { quote } from './shell.js';
import { ended, waiting, running, kind, tally } from './states.js';
import { StoryTab } from './story.js';
import { WhyTab } from './why.js';
import { TasksTab } from './taskrows.js';
import { LogTab } from './logview.js';
import { FilesTab } from './tarfiles.js';
import { ExecTab } from './exec.js';

const TABS = [['story', 'Story'], ['tasks', 'Tasks'], ['log', 'Log'], ['why', 'Why'], ['files', 'Files'], ['exec', 'Terminal']];

// useJob is the document of a job, loaded anew after its events, at most every two seconds.
function useJob(id) {
  const [job, setJob] = useState(null);
  const [error, setError] = useState(null);
  const again = useRef(() => {});
  useEffect(() => {
    let over = false;
    let timer = 0;
    let last = 0;
    const load = async () => {
      timer = 0;
      last = Date.now();
      try {
        const j = await get('/v1/jobs/' + encodeURIComponent(id));
        if (over) return;
        setJob(j);
        setError(null);
      } catch (e) {
        if (!over && e.name !== 'AbortError') setError(e);
      }
    };
    const soon = () => { timer ||= setTimeout(load, Math.max(0, 2000 - (Date.now() - last))); };
    again.current = soon;
    load();
    const stop = onEvent((batch) => {
      const mine = batch.filter((e) => e.kind === 'gap' || (e.kind === 'job' && e.id === id));
      if (!mine.length) return;
      const e = mine[mine.length - 1];
      if (e.job) setJob((j) => j && { ...j, ...e.job, tasks: e.job.tasks?.length ? e.job.tasks.map((t) => ({ ...j.tasks?.find((o) => o.task === t.task), ...t })) : j.tasks });
      soon();
    });
    const off = link.watch(() => { if (link.value.ok) soon(); });
    return () => {
      over = true;
      clearTimeout(timer);
      stop();
      off();
    };
  }, [id]);
  return { job, error, again };
}

export function JobPage({ id, tab }) {
  const { job: j, error, again } = useJob(id);
  if (!j) return html`<${Head} title=${id} />${error ? html`<${Failure} error=${error} />` : html`<${Empty}>Loading…<//>`}`;
  const change = async (what, verb, body) => {
    if (await act(what, () => post(`/v1/jobs/${encodeURIComponent(j.id)}/${verb}`, body))) again.current();
  };
  const acts = actsOf(j, change);
  return html`<${Head} title=${j.name || j.id} after=${html`<${State} of=${j.state} />${kind(j) ? html`<span class="note">${kind(j)}</span>` : ''}`}>
      ${!ended(j.state) && html`<button type="button" class="stop" onClick=${acts.cancel}>Cancel…</button>`}
      ${['PENDING', 'RESERVED'].includes(j.state) || j.counts?.PENDING ? html`<button type="button" onClick=${acts.hold}>Hold…</button>` : ''}
      ${j.state === 'HELD' || j.counts?.HELD ? html`<button type="button" onClick=${() => change(`Released ${j.id}`, 'release')}>Release</button>` : ''}
      <button type="button" onClick=${acts.requeue}>Run again…</button><//>
    ${error && link.value.ok ? html`<${Failure} error=${error} />` : ''}
    <${Summary} j=${j} tab=${tab} />
    <div class="tabs" role="navigation" aria-label="Parts of the job">${TABS.map(([k, text]) => html`<${A} href=${`/jobs/${j.id}${k === 'story' ? '' : '/' + k}`} aria-current=${k === tab ? 'page' : undefined}>${text}${k === 'tasks' && j.task_count > 1 ? html` <small>${count(j.task_count)}</small>` : ''}<//>`)}</div>
    ${tab === 'story' ? html`<${StoryTab} job=${j} />` : tab === 'tasks' ? html`<${TasksTab} job=${j} cancel=${acts.cancelTask} requeue=${acts.requeueTask} />` : tab === 'log' ? html`<${LogTab} job=${j} />`
      : tab === 'why' ? html`<${WhyTab} job=${j} />` : tab === 'files' ? html`<${FilesTab} job=${j} />` : tab === 'exec' ? html`<${ExecTab} job=${j} />` : html`<${Empty}>There is no such part.<//>`}`;
}

function Summary({ j, tab }) {
  const r = j.resources || {};
  const on = [...new Map((j.tasks || []).filter((t) => t.node && (ended(j.state) ? !waiting(t.state) : running(t.state))).map((t) => [t.node_id, t.node]))].sort((a, b) => compare(a[1], b[1]));
  const asks = [plural(r.cpus, 'CPU'), r.memory > 0 && bytes(r.memory), r.gpus > 0 && `${plural(r.gpus, r.gpu_model ? plain(r.gpu_model) + ' GPU' : 'GPU')}${r.gpu_memory ? `, ${bytes(r.gpu_memory)} each` : ''}`, r.gpu_share > 0 && `${Math.round(100 * r.gpu_share)} % of a GPU`].filter(Boolean).join(', ');
  return html`<${Facts} rows=${[
    ['Id', html`<code>${j.id}</code>`], ['User', html`<${Name} of=${j.user} />${j.spec?.project ? html` <span class="note">project <${Name} of=${j.spec.project} /></span>` : ''}`],
    ['Submitted', html`<${Ago} at=${here(j.submitted_at, j.clock_ahead)} suffix=" ago" />`],
    ['Started', j.started_at ? html`<${Ago} at=${here(j.started_at, j.clock_ahead)} suffix=" ago" />` : Date.parse(j.begin_at) > Date.now() && !ended(j.state) ? `not before ${time(j.begin_at)}` : j.estimated_start ? `by ${time(j.estimated_start)}, as far as is known` : NONE],
    ['Ran', j.started_at ? html`<${Ran} from=${here(j.started_at, j.clock_ahead)} to=${here(j.ended_at, j.clock_ahead)} />${j.time_limit ? html` <span class="note">of ${duration(j.time_limit)}</span>` : ''}` : NONE],
    ended(j.state) && ['Exit code', j.exit_code ?? NONE], [j.task_count > 1 ? 'Each task' : 'Asks for', asks],
    on.length > 0 && [ended(j.state) ? 'Ran on' : 'Runs on', html`${on.slice(0, 8).map(([id, name], i) => html`${i ? ', ' : ''}<${NodeLink} id=${id} name=${name} />`)}${on.length > 8 ? ` and ${on.length - 8} more` : ''}`],
    ['Priority', count(j.priority)], j.started_at && ended(j.state) && ['Used', html`<${Used} j=${j} />`, 'wide'],
    j.task_count > 1 && ['Tasks', html`${Object.entries(j.counts || {}).map(([s, n]) => html`<span class="tally"><${State} of=${s} /> ${count(n)}</span>`)}`, 'wide'],
    j.reason && tab !== 'why' && ['Reason', html`<${Name} of=${j.reason} />${j.reason_detail ? html`<small>: ${plain(j.reason_detail)}</small>` : ''}`, 'wide'],
    j.dependencies?.length && ['Waits for', html`${j.dependencies.map((d) => html`<span class="tally">${plain(d.condition)} <${A} href=${'/jobs/' + encodeURIComponent(d.job)} class="id">${d.job}<//> (${plain(d.state)})</span>`)}`],
    j.spec && ['Command', html`<code class="wrap">${plain((j.spec.command?.map(quote).join(' ') || j.spec.script || '').slice(0, 500))}</code>`, 'wide'], j.spec?.image && ['Image', html`<code class="wrap">${plain(j.spec.image)}</code>`, 'wide'],
  ]} />`;
}

// Used is what the tasks of a job have used that have ended, as far as that is known.
function Used({ j }) {
  const [u, setU] = useState({});
  useEffect(() => {
    const end = new AbortController();
    get(`/v1/jobs/${encodeURIComponent(j.id)}/usage`, { signal: end.signal }).then(setU, () => { /* it stays unknown */ });
    return () => end.abort();
  }, [j.id, j.state]);
  const share = (used, held) => (used > 0 && held > 0 ? ` (${percent(part(used, held))} of what it held)` : '');
  return [known(u.cpu_seconds) && `${duration(u.cpu_seconds)} of CPU time${share(u.cpu_seconds, u.cpu_seconds_known)}`, known(u.memory_peak) && `at most ${bytes(u.memory_peak)} of memory${j.task_count > 1 ? ' in a task' : ''}`, known(u.gpu_seconds) && `${duration(u.gpu_seconds)} of GPU time${share(u.gpu_seconds, u.gpu_seconds_known)}`].filter(Boolean).join(', ') || NONE;
}

// hits says what an act ends.
function hits(j) {
  const nodes = new Set((j.tasks || []).filter((t) => running(t.state)).map((t) => t.node_id)).size;
  const [runs, waits] = [tally(j.counts, running), tally(j.counts, waiting)];
  return [runs && html`<b>${plural(runs, 'task')}</b> run${runs === 1 ? 's' : ''}${nodes ? ` on ${plural(nodes, 'node')}` : ''} and ${runs === 1 ? 'is' : 'are'} ended.`, waits && html`<b>${plural(waits, 'task')}</b> wait${waits === 1 ? 's' : ''} and never start${waits === 1 ? 's' : ''}.`];
}

function actsOf(j, change) {
  const title = `${plain(j.name) || 'job'} (${j.id}) of ${plain(j.user)}`;
  const reason = [{ name: 'reason', label: 'Reason' }];
  return {
    cancel: async () => {
      const a = await ask({ title: `Cancel ${title}?`, action: 'Cancel the job', hits: hits(j), fields: reason });
      if (a) change(`Cancelled ${j.id}`, 'cancel', { reason: a.reason || undefined });
    },
    cancelTask: async (t) => {
      const a = await ask({ title: `Cancel task ${t.task} of ${title}?`, action: 'Cancel the task', hits: [running(t.state) ? `It runs on ${plain(t.node)} and is ended.` : 'It waits and never starts.', j.nodes > 1 && 'Its gang ends with it.'], fields: reason });
      if (a) change(`Cancelled ${j.id}.${t.task}`, 'cancel', { tasks: String(t.task), reason: a.reason || undefined });
    },
    hold: async () => {
      const a = await ask({ title: `Hold ${title}?`, action: 'Hold it', danger: false, hits: [`${plural(j.counts?.PENDING || 0, 'task')} that wait${j.counts?.PENDING === 1 ? 's' : ''} do${j.counts?.PENDING === 1 ? 'es' : ''} not start until released. What runs goes on.`], fields: reason });
      if (a) change(`Held ${j.id}`, 'hold', { reason: a.reason || undefined });
    },
    requeue: async () => {
      const runs = tally(j.counts, running);
      const a = await ask({ title: `Run ${title} again?`, action: 'Run it again', danger: runs > 0, hits: [runs > 0 && html`<b>${plural(runs, 'task')}</b> run${runs === 1 ? 's' : ''} and ${runs === 1 ? 'is' : 'are'} ended first.`, `${plural(j.task_count, 'task')} start${j.task_count === 1 ? 's' : ''} from the beginning.`], fields: reason });
      if (a) change(`${j.id} runs again`, 'requeue', { reason: a.reason || undefined });
    },
    requeueTask: async (t) => {
      const a = await ask({ title: `Run task ${t.task} of ${title} again?`, action: 'Run it again', danger: false, hits: ['It starts from the beginning.', j.nodes > 1 && 'Its whole gang runs again.'], fields: reason });
      if (a) change(`${j.id}.${t.task} runs again`, 'requeue', { tasks: String(t.task), reason: a.reason || undefined });
    },
  };
}

