// The pages of all nodes and of one node: what it has, what runs there, and taking it out of service.

import { html, useState, useEffect, useMemo } from './lib.js';
import { useStore } from './store.js';
import { nodes } from './resource.js';
import { get, post } from './api.js';
import { ask, act } from './dialog.js';
import { JobList } from './joblist.js';
import { userOf } from './holders.js';
import { GpuTable } from './gpus.js';
import { Virtual } from './virtual.js';
import { utilisation } from './overview.js';
import { place, setParams, A } from './router.js';
import { Head, State, NodeState, Ago, Ran, Name, JobLink, NodeLink, Facts, Labels, Empty, Bar, Drawn } from './parts.js';
import { bytes, count, known, percent, part, plain, plural, short, time, compare, NONE } from './format.js';
import { answers, running, gpuState, kind } from './states.js';

// What the daemon calls the ways in which a node runs tasks, in words. Its other words there are for daemons.
const WAYS = { exec: 'processes', docker: 'containers' };

// freeGPUs is what is free of the GPUs of a node. Shares count as such.
const freeGPUs = (n) => n.gpus.reduce((sum, g) => sum + g.free, 0);

export function Nodes() {
  const list = useStore(nodes).data?.items;
  const { params } = useStore(place);
  const text = params.get('q') || '';
  const rows = useMemo(() => (list || []).filter((n) => !text || [n.name, n.state, n.id, ...Object.entries(n.labels).map(([k, v]) => `${k}=${v}`)].some((s) => s.includes(text))).sort((a, b) => compare(a.name, b.name)), [list, text]);
  return html`<${Head} title="Nodes" fresh=${nodes} after=${list && html`<span class="note">${plural(rows.length, 'node')}</span>`} />
    <div class="filter" role="search" aria-label="Filter nodes"><input type="search" data-filter aria-label="Name, state or label" placeholder="Name, state or label=value" value=${text} onInput=${(e) => setParams({ q: e.target.value })} /></div>
    ${!list ? html`<${Empty}>Loading…<//>` : !rows.length ? html`<${Empty}>No node matches.<//>` : html`<${Virtual} label="Nodes" count=${rows.length} height=${matchMedia('(max-width: 700px)').matches ? 74 : 28}
      head=${html`<div role="row" class="vrow nrow"><span role="columnheader">Node</span><span role="columnheader">State</span><span role="columnheader" class="n">GPUs free</span><span role="columnheader" class="n">In use</span><span role="columnheader" class="n">CPUs free</span><span role="columnheader" class="n">Memory free</span><span role="columnheader" class="n">Tasks</span><span role="columnheader">Labels</span><span role="columnheader">Note</span></div>`}
      row=${(i, style) => html`<${Row} key=${rows[i].id} i=${i} n=${rows[i]} ...${style} />`} />`}`;
}

class Row extends Drawn {
  render({ i, n, top, height }) {
    const live = answers(n);
    const of = (free, all) => `${live ? free : NONE} / ${all}`;
    const bad = n.gpus.filter((g) => gpuState(g, n) === 'unhealthy').length;
    const why = plain(n.drain?.reason || n.detail);
    return html`<div role="row" class="vrow nrow" aria-rowindex=${i + 2} data-row=${i} style=${{ top, height }}>
      <span role="rowheader"><${NodeLink} id=${n.id} name=${n.name} /></span><span role="cell"><${NodeState} of=${n.state} /></span>
      <span role="cell" class="n">${n.gpus.length ? of(count(freeGPUs(n)), count(n.gpus.length)) : '0'}${n.gpus[0]?.simulated ? html` <span class="sim">sim</span>` : ''}</span><span role="cell" class="n use">${percent(utilisation([n]).mean)}</span>
      <span role="cell" class="n cpus">${of(count(n.free.cpus), count(n.cpus))}</span><span role="cell" class="n mem">${of(bytes(n.free.memory), bytes(n.memory))}</span><span role="cell" class="n ran">${live ? count(n.running) : NONE}</span><span role="cell" class="marks"><${Labels} of=${n.labels} signed=${n.signed_labels} /></span>
      <span role="cell" class="where" title=${why || undefined}>${bad ? html`<span class="bad">▲ ${plural(bad, 'unhealthy GPU')}</span> ` : ''}${why}</span></div>`;
  }
}

export function NodePage({ id }) {
  const all = useStore(nodes);
  const owners = useStore(userOf);
  const n = all.data?.items.find((x) => x.id === id || x.name === id);
  if (!n) return html`<${Head} title=${short(id)} fresh=${nodes} /><${Empty}>${all.data ? 'There is no such node.' : 'Loading…'}<//>`;
  const live = answers(n);
  const out = n.state === 'draining' || n.drain;
  const bad = n.gpus.some((g) => gpuState(g, n) === 'unhealthy');
  const share = (free, all) => live && html`<${Bar} label=${percent(part(all - free, all)) + ' allocated'} parts=${[['held', part(all - free, all)]]} />`;
  return html`<${Head} title=${n.name} fresh=${nodes} after=${html`<${NodeState} of=${n.state} />`}>
      <button type="button" disabled=${Boolean(out) || !live} onClick=${() => drain(n)}>Drain…</button>
      <button type="button" disabled=${!live || !(out || bad)} onClick=${() => resume(n)}>Resume…</button><//>
    ${n.drain && html`<p class="callout warn">◐ Taken out of service by ${plain(n.drain.by)} <${Ago} at=${n.drain.since} /> ago${n.drain.reason ? `: ${plain(n.drain.reason)}` : ''}. ${n.drain.deadline ? `What still runs at ${time(n.drain.deadline)} is ended and runs again elsewhere.` : 'What runs there runs on.'}</p>`}
    ${!live && html`<p class="callout warn">? ${plain(n.name)}: ${plain(n.detail || 'it does not answer')}${n.seen_at ? html`; it was last heard from <${Ago} at=${n.seen_at} /> ago` : ''}. What runs there and what is free there is not known.</p>`}
    <${Facts} rows=${[
      ['Tasks', live ? `${plural(n.running, 'task')} run${n.running === 1 ? 's' : ''} here` : NONE],
      ['CPUs', html`${live ? count(n.cpus - n.free.cpus) : NONE} of ${count(n.cpus)} allocated ${share(n.free.cpus, n.cpus)}`],
      ['Memory', html`${live ? bytes(n.memory - n.free.memory) : NONE} of ${bytes(n.memory)} allocated ${share(n.free.memory, n.memory)}`],
      ['In use', live && n.usage ? [known(n.usage.cpus) && `${n.usage.cpus.toFixed(1)} CPUs`, known(n.usage.memory) && bytes(n.usage.memory)].filter(Boolean).join(', ') : ''],
      ['Disk', bytes(n.disk)], ['Runs', n.worker ? n.drivers.map((d) => WAYS[d]).filter(Boolean).join(', ') : 'no tasks'], n.only_user && ['Only for', plain(n.only_user)], n.no_root && ['Only for', 'all but root'],
      ['System', plain([n.os, n.arch].filter(Boolean).join(' '))], n.gpu_driver && ['GPU driver', plain(n.gpu_driver)], ['Version', plain(n.version)],
      ['Labels', html`<${Labels} of=${n.labels} signed=${n.signed_labels} />`, 'wide'], ['Id', html`<code class="wrap">${n.id}</code>`, 'wide'], ['Addresses', n.addrs.map((a) => html`<code class="wrap row">${plain(a)}</code>`), 'wide'],
    ]} />
    <section aria-labelledby="n-gpus"><h2 id="n-gpus">GPUs</h2>${n.gpus.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Table of GPUs"><${GpuTable} node=${n} owners=${owners} /></div>` : html`<${Empty}>It has none.<//>`}</section>
    <section aria-labelledby="n-tasks"><h2 id="n-tasks">What runs here</h2><${Running} node=${n} /></section>`;
}

// Running lists the jobs that run on a node. The documents of jobs with many tasks do not say where each runs; those are
// found by the GPUs that they hold.
function Running({ node }) {
  const list = useMemo(() => new JobList({ state: 'STARTING,RUNNING,UNREACHABLE,COMPLETING', user: '', name: '' }), [node.id]);
  const { jobs, at, done } = useStore(list);
  useEffect(() => list.start(), [list]);
  useEffect(() => { if (at && !done) list.more(); }, [at]);
  const holders = new Set(node.gpus.flatMap((g) => g.jobs));
  const here = jobs.filter((j) => running(j.state) && (j.onIDs.includes(node.id) || holders.has(j.id)));
  if (!at) return html`<${Empty}>Loading…<//>`;
  return html`${here.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Table of jobs"><table class="plain rows"><thead><tr><th scope="col">Job</th><th scope="col">State</th><th scope="col">Name</th><th scope="col">User</th><th scope="col">Kind</th><th scope="col" class="n">Runs for</th></tr></thead><tbody>${here.slice(0, 500).map((j) => html`<tr key=${j.id}><th scope="row"><${JobLink} id=${j.id} /></th><td><${State} of=${j.state} /></td><td><${Name} of=${j.name} /></td><td><${Name} of=${j.user} /></td><td>${kind(j)}</td><td class="n"><${Ran} from=${j.started} /></td></tr>`)}</tbody></table></div>`}
    ${answers(node) && node.running > here.length ? html`<p class="note">${plural(node.running, 'task')} run${node.running === 1 ? 's' : ''} here. This list has each job once, and leaves out arrays that hold no GPU here: <${A} href="/jobs?state=RUNNING">all running jobs<//>.</p>` : !here.length && html`<${Empty}>${answers(node) ? 'Nothing runs here.' : 'Not known.'}<//>`}`;
}

// current is what a node says of itself now: what the page shows may be some seconds old, and a question must name what it
// hits.
const current = (n) => get(`/v1/nodes/${encodeURIComponent(n.id)}`).then((now) => (answers(now) ? now : n), () => n);

async function drain(shown) {
  const n = await current(shown);
  const held = new Set(n.gpus.flatMap((g) => g.jobs)).size;
  const answer = await ask({
    title: `Drain ${plain(n.name)}?`, action: 'Drain it', danger: false,
    hits: ['Nothing new starts there.', n.running ? html`<b>${plural(n.running, 'task')}</b> run there${held ? ` and hold GPUs for ${plural(held, 'job')}` : ''}. Without a deadline they run on; with one, those that still run then are ended and run again elsewhere.` : answers(n) ? 'Nothing runs there now.' : 'It does not answer: what runs there is not known.'],
    fields: [{ name: 'reason', label: 'Reason' }, { name: 'minutes', label: 'Deadline in minutes', hint: 'empty: none' }],
  });
  if (!answer) return;
  const minutes = Number(answer.minutes);
  if (answer.minutes && !(minutes >= 0)) return void act('Drain: the deadline is not a number of minutes', () => { throw new Error(`want a number, not ${answer.minutes}`); });
  if (await act(`Draining ${plain(n.name)}`, () => post(`/v1/nodes/${encodeURIComponent(n.id)}/drain`, { reason: answer.reason || undefined, deadline: answer.minutes ? 60 * minutes : undefined }))) nodes.soon();
}

async function resume(shown) {
  const n = await current(shown);
  const bad = n.gpus.filter((g) => gpuState(g, n) === 'unhealthy').length;
  const answer = await ask({ title: `Resume ${plain(n.name)}?`, action: 'Resume it', danger: false, hits: ['New tasks may start there again.', bad ? `${plural(bad, 'GPU')} leave quarantine: tasks may get them.` : ''] });
  if (answer && await act(`Resumed ${plain(n.name)}`, () => post(`/v1/nodes/${encodeURIComponent(n.id)}/resume`))) nodes.soon();
}

