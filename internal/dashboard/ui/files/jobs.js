// The page of all jobs: a filter that lives in the URL, and a long list.

import { html, useState, useEffect, useMemo, useRef } from './lib.js';
import { useStore } from './store.js';
import { JobList, MOST, gpusOfAll } from './joblist.js';
import { stats } from './resource.js';
import { Virtual } from './virtual.js';
import { place, setParams, A } from './router.js';
import { Head, State, Ago, Ran, Name, JobLink, Failure, Empty, Drawn } from './parts.js';
import { count, plain, plural, NONE } from './format.js';
import { JOB, kind, ended, outcome, tally } from './states.js';

// Each filter in the words of a person, and as the daemon wants it.
const SETS = { active: 'PENDING,HELD,RESERVED,STARTING,RUNNING,UNREACHABLE,COMPLETING', failed: 'FAILED,TIMEOUT,OUT_OF_MEMORY,NODE_FAIL' };

function filterOf(params) {
  const name = params.get('name') || '';
  const state = params.get('state') || '';
  return { state: SETS[state] || state, user: params.get('user') || '', name: name && !/[*?[]/.test(name) ? `*${name}*` : name };
}

export function Jobs() {
  const { params } = useStore(place);
  const filter = filterOf(params);
  const list = useMemo(() => new JobList(filter), [JSON.stringify(filter)]);
  const { jobs, done, error, at, partial } = useStore(list);
  useEffect(() => list.start(), [list]);
  const totals = useStore(stats).data?.jobs;
  const free = !filter.state && !filter.user && !filter.name;
  const total = free && totals ? Object.values(totals).reduce((a, b) => a + b, 0) : 0;
  return html`<${Head} title="Jobs" after=${html`<span class="note">${at ? (done ? plural(jobs.length, 'job') : `${count(jobs.length)} loaded${total > jobs.length ? ` of ${count(total)}` : ', more below'}`) : 'loading…'}${jobs.length >= MOST ? '; narrow the filter to see older ones' : ''}${partial.length ? html` · <span class="warn">no answer from ${partial.map(plain).join(', ')}</span>` : ''}</span>`}><${A} href="/submit" class="button">Submit a job<//><//>
    <${Filter} params=${params} />
    <${Failure} error=${error} />
    ${at && !jobs.length ? html`<${Empty}>No job matches. ${!free && html`<button onClick=${() => setParams({ state: '', user: '', name: '' })}>Clear the filter</button>`}<//>` : html`<${Virtual} label="Jobs" count=${jobs.length} total=${Math.max(total, jobs.length)} height=${matchMedia('(max-width: 700px)').matches ? 52 : 28} onNear=${() => list.more()}
      head=${html`<div role="row" class="vrow jrow"><span role="columnheader">State</span><span role="columnheader">Job</span><span role="columnheader">Name</span><span role="columnheader">User</span><span role="columnheader" class="n">Tasks</span><span role="columnheader" class="n">GPUs</span><span role="columnheader" class="n">Submitted</span><span role="columnheader" class="n">Ran</span><span role="columnheader">Where, or why not</span></div>`}
      row=${(i, style) => html`<${Row} key=${jobs[i].id} i=${i} j=${jobs[i]} ...${style} />`} />`}`;
}

class Row extends Drawn {
  render({ i, j, top, height }) {
    return html`<div role="row" class="vrow jrow" aria-rowindex=${i + 2} data-row=${i} style=${{ top, height }}>
      <span role="cell"><${State} of=${j.state} /></span><span role="cell"><${JobLink} id=${j.id} /></span><span role="cell"><${Name} of=${j.name} /></span><span role="cell" class="user"><${Name} of=${j.user} /></span>
      <span role="cell" class=${kind(j) ? 'n' : 'n one'} title=${kind(j)}>${tasks(j)}</span><span role="cell" class="n gp">${j.gpus ? count(gpusOfAll(j)) : ''}</span><span role="cell" class="n"><${Ago} at=${j.submitted} /></span>
      <span role="cell" class="n ran">${j.started ? html`<${Ran} from=${j.started} to=${j.ended} />` : NONE}</span><span role="cell" class="where"><${Where} j=${j} /></span></div>`;
  }
}

// tasks says what a job consists of: ⫴ an array, ⧉ a gang.
function tasks(j) {
  const k = kind(j);
  if (!k) return j.tasks === 1 ? '1' : count(j.tasks);
  const over = tally(j.counts, ended);
  return html`<abbr title=${k}>${j.array ? 'array' : 'gang'}</abbr> ${ended(j.state) || !over ? count(j.tasks) : `${count(over)}/${count(j.tasks)}`}`;
}

function Where({ j }) {
  const n = j.tasks > 1 && j.counts?.RUNNING;
  const on = j.on.length ? `on ${j.on.slice(0, 3).join(', ')}${j.on.length > 3 ? ` and ${j.on.length - 3} more` : ''}` : n ? `${count(n)} running` : '';
  return html`<span title=${plain(j.detail)}><${Name} of=${[outcome(j), on].filter(Boolean).join(' · ')} none="" /></span>`;
}

function Filter({ params }) {
  const [name, setName] = useState(params.get('name') || '');
  const [user, setUser] = useState(params.get('user') || '');
  const timer = useRef(0);
  useEffect(() => { setName(params.get('name') || ''); setUser(params.get('user') || ''); }, [params]);
  const later = (set, key) => (e) => {
    const value = e.target.value;
    set(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setParams({ [key]: value.trim() }), 300);
  };
  const state = params.get('state') || '';
  const pick = (value, text) => html`<button type="button" aria-pressed=${state === value ? 'true' : 'false'} onClick=${() => setParams({ state: value })}>${text}</button>`;
  return html`<div class="filter" role="search" aria-label="Filter jobs">
    <div class="choice" role="group" aria-label="State">${pick('', 'All')}${pick('active', 'Active')}${pick('RUNNING', 'Running')}${pick('PENDING', 'Pending')}${pick('failed', 'Failed')}</div>
    <select aria-label="One state" value=${JOB[state] ? state : ''} onChange=${(e) => setParams({ state: e.target.value })}><option value="">any state</option>${Object.keys(JOB).map((s) => html`<option value=${s}>${s}</option>`)}</select>
    <input type="search" data-filter placeholder="Name, * for any text" aria-label="Name" value=${name} onInput=${later(setName, 'name')} />
    <input type="search" placeholder="User" aria-label="User" value=${user} onInput=${later(setUser, 'user')} />
  </div>`;
}
