// The overview: what is allocated and what of it is used, what waits and why, and what has changed last.

import { html, useState, useEffect, useMemo } from './lib.js';
import { useStore, Store } from './store.js';
import { nodes, stats } from './resource.js';
import { onEvent } from './events.js';
import { get, again } from './api.js';
import { listed, slim } from './joblist.js';
import { Chart } from './chart.js';
import { A } from './router.js';
import { Head, State, Ago, Name, NodeLink, JobLink, Bar, Empty } from './parts.js';
import { bytes, count, duration, percent, part, NONE, plain, plural } from './format.js';
import { JOB, NODE, kind, answers, outcome } from './states.js';

// use is the mean utilisation of the GPUs that tell it, and how many those are.
export function utilisation(list) {
  let sum = 0;
  let n = 0;
  for (const node of list) {
    if (!answers(node)) continue;
    for (const g of node.gpus) {
      if (g.utilization >= 0 && g.health !== 'unknown') {
        sum += g.utilization;
        n++;
      }
    }
  }
  return { mean: n ? sum / n : -1, known: n };
}

// inUse is how much of a resource the nodes use that tell it, in percent of what these have; -1 if none tells.
export function inUse(list, has) {
  let sum = 0;
  let of = 0;
  for (const node of list) {
    const used = answers(node) && node.usage ? node.usage[has] : null;
    if (typeof used === 'number' && node[has] > 0) {
      sum += used;
      of += node[has];
    }
  }
  return part(sum, of);
}

const samples = new Store([]); // [seconds, allocated %, utilisation %], as this tab has seen them

function sample() {
  const list = nodes.value.data?.items;
  const s = stats.value.data;
  const now = Math.floor(Date.now() / 1000);
  const rows = samples.value;
  if (!list || !s || (rows.length && now - rows[rows.length - 1][0] < 5)) return;
  const used = utilisation(list).mean;
  const held = part(s.gpus.held, s.gpus.total);
  samples.set([...rows.slice(-719), [now, held < 0 ? null : held, used < 0 ? null : used]]);
}

export function Overview() {
  const s = useStore(stats).data;
  const list = useStore(nodes).data?.items;
  const any = s && Object.values(s.jobs).some((n) => n > 0);
  useEffect(() => sample());
  return html`<${Head} title="Overview" fresh=${stats} />
    <div class="overview">
      <section aria-labelledby="o-cap"><h2 id="o-cap">Capacity</h2>${s ? html`<${Capacity} s=${s} list=${list} />` : html`<${Empty}>Loading…<//>`}<${History} /></section>
      <section aria-labelledby="o-queue"><h2 id="o-queue">Jobs</h2>${s ? html`<${Counts} s=${s} />${any && html`<${Waits} s=${s} />`}` : html`<${Empty}>Loading…<//>`}${any && html`<${Queue} />`}${s && html`<${Users} s=${s} />`}</section>
      <section aria-labelledby="o-new" class="wide"><h2 id="o-new">Latest changes</h2><${Latest} /></section>
    </div>`;
}

function Capacity({ s, list }) {
  const use = list ? utilisation(list) : { mean: -1, known: 0 };
  const models = Object.keys(s.models).sort();
  const sim = new Set((list || []).flatMap((n) => n.gpus.filter((g) => g.simulated).map((g) => g.class)));
  const others = Object.entries(s.nodes).filter(([k, n]) => k !== 'ready' && n > 0);
  return html`<table class="capacity"><thead><tr><th scope="col">Resource</th><th scope="col" class="n">Allocated</th><th scope="col" class="n">of</th><th scope="col"><span class="sr">Share</span></th><th scope="col" class="n">Share</th><th scope="col" class="n">In use</th></tr></thead><tbody>
    <${Amount} name="GPUs" a=${s.gpus} show=${count} use=${use.mean} note=${use.known && use.known < s.gpus.total ? `of the ${use.known} that tell it` : ''} />
    ${models.length > 1 || sim.size ? models.map((m) => html`<${Amount} sub name=${html`${plain(m)}${sim.has(m) ? html` <span class="sim">sim</span>` : ''}`} a=${s.models[m]} show=${count} use=${list ? utilisation(list.map((n) => ({ ...n, gpus: n.gpus.filter((g) => g.class === m) }))).mean : -1} />`) : ''}
    <${Amount} name="CPUs" a=${s.cpus} show=${count} use=${list ? inUse(list, 'cpus') : -1} />
    <${Amount} name="Memory" a=${s.memory} show=${bytes} use=${list ? inUse(list, 'memory') : -1} />
  </tbody></table>
  <p class="line"><${A} href="/nodes">${plural(Object.values(s.nodes).reduce((a, b) => a + b, 0), 'node')}<//>${s.nodes.ready ? html`<span>${count(s.nodes.ready)} ready</span>` : ''}${others.map(([k, n]) => html`<span class=${NODE[k]?.[1]}>${count(n)} ${k}</span>`)}${list && list.length <= 6 ? list.map((n) => html`<${NodeLink} id=${n.id} name=${n.name} />`) : ''}</p>`;
}

function Amount({ name, a, show, use, sub, note }) {
  const held = a.held === undefined ? a.total - a.free : a.held; // null: not known
  const p = part(held, a.total);
  return html`<tr class=${sub ? 'sub' : ''}><th scope="row">${name}</th><td class="n">${show(held)}</td><td class="n">${show(a.total)}</td>
    <td class="w">${p >= 0 && html`<${Bar} label=${`${percent(p)} allocated${use >= 0 ? `, ${percent(use)} in use` : ''}`} parts=${[['held', p]]} />${use >= 0 && html`<${Bar} label=${`${percent(use)} in use`} parts=${[['used', use]]} />`}`}</td>
    <td class="n">${percent(p)}</td><td class="n" title=${note || undefined}>${percent(use)}${note ? '*' : ''}</td></tr>`;
}

// History draws what this tab has seen. There is nothing to draw until it has seen something.
function History() {
  const rows = useStore(samples);
  const data = useMemo(() => [rows.map((r) => r[0]), rows.map((r) => r[1]), rows.map((r) => r[2])], [rows]);
  if (rows.length < 4) return null;
  const used = rows.some((r) => r[2] !== null);
  return html`<figure><figcaption>GPUs since this page was opened: <b class="k1">▬ allocated</b>${used && html` <b class="k2">┅ in use</b>`}</figcaption><${Chart} data=${used ? data : data.slice(0, 2)} names=${used ? ['allocated', 'in use'] : ['allocated']} label="Share of the GPUs that is allocated, and their mean utilisation, in percent" /></figure>`;
}

function Counts({ s }) {
  const rows = Object.keys(JOB).filter((k) => s.jobs[k] > 0);
  if (!rows.length) return html`<${Empty}>No jobs yet. <${A} href="/submit">Submit one<//>.<//>`;
  return html`<ul class="counts">${rows.map((k) => html`<li><${A} href=${'/jobs?state=' + k}><${State} of=${k} /><b>${count(s.jobs[k])}</b><//></li>`)}</ul>`;
}

// Waits tells how long the jobs waited that started in the last hour, and since when the oldest waits.
function Waits({ s }) {
  const w = s.waits;
  if (!w) return html`<p class="line">Waiting times: ${NONE}</p>`;
  const took = (x) => (x === null ? NONE : x < 1 ? '< 1s' : duration(x));
  return html`<h3>Waiting times of the jobs that started in the last hour</h3><ul class="counts">
    <li><span>jobs</span><b>${count(w.started)}</b></li><li><span>median</span><b>${took(w.p50)}</b></li>
    <li><span>95th percentile</span><b>${took(w.p95)}</b></li><li><span>longest</span><b>${took(w.longest)}</b></li>
    <li><span>oldest that waits</span><b><${Ago} at=${w.waiting_since} /></b></li></ul>
    ${w.started === 0 && html`<p class="note">A daemon counts from its start on.</p>`}
    ${w.partial.length > 0 && html`<p class="note">without the jobs of ${w.partial.map(plain).join(', ')}</p>`}`;
}

// Users shows who holds most.
function Users({ s }) {
  const rows = (s.users || []).slice(0, 8);
  if (!rows.length) return null;
  const more = s.users.length - rows.length + (s.more_users || 0);
  return html`<h3>Users</h3><div class="scroll" tabindex="0" role="region" aria-label="Table of the users that hold most"><table class="plain"><thead><tr><th scope="col">User</th><th scope="col" class="n">GPUs</th><th scope="col" class="n">Tasks running</th><th scope="col" class="n">Tasks waiting</th></tr></thead>
    <tbody>${rows.map((u) => html`<tr key=${u.user}><td><${A} href=${'/jobs?user=' + encodeURIComponent(u.user)}><${Name} of=${u.user} /><//></td><td class="n">${count(u.gpus)}</td><td class="n">${count(u.running)}</td><td class="n">${count(u.pending)}</td></tr>`)}</tbody></table></div>
    ${more > 0 && html`<p class="line"><${A} href="/users">${plural(more, 'more user')}<//></p>`}`;
}

// Queue shows why jobs wait, and what waits longest.
function Queue() {
  const [waiting, setWaiting] = useState(null);
  useEffect(() => again(async (signal) => {
    try {
      const list = await get('/v1/jobs?state=PENDING,HELD&fields=id,name,submitted_at,reason,clock_ahead&limit=500', { signal });
      setWaiting({ jobs: list.items.map(listed), more: Boolean(list.next) });
    } catch { /* the banner or the next try says it */ }
  }, 8000), []);
  if (!waiting || !waiting.jobs.length) return waiting ? html`<p class="line">Nothing waits.</p>` : null;
  const why = {};
  for (const j of waiting.jobs) why[j.reason || NONE] = (why[j.reason || NONE] || 0) + 1;
  const oldest = waiting.jobs.slice(-6).reverse();
  return html`<h3>Why jobs wait</h3><ul class="counts reasons">${Object.entries(why).sort((a, b) => b[1] - a[1]).map(([r, n]) => html`<li><span>${plain(r)}</span><b>${count(n)}</b></li>`)}</ul>${waiting.more && html`<p class="note">of the newest 500 that wait</p>`}
    <h3>Waiting longest</h3><div class="scroll" tabindex="0" role="region" aria-label="Table of what waits longest"><table class="plain"><tbody>${oldest.map((j) => html`<tr><td><${JobLink} id=${j.id} /></td><td><${Name} of=${j.name} /></td><td class="n"><${Ago} at=${j.submitted} /></td><td class="grow">${plain(j.reason)}</td></tr>`)}</tbody></table></div>`;
}

const touched = (j) => j.ended || j.started || j.submitted;

function Latest() {
  const [rows, setRows] = useState(null);
  useEffect(() => {
    let over = false;
    let again = 0;
    const merge = (fresh) => setRows((old) => {
      const all = new Map([...(old || []), ...fresh].map((r) => [r.id + r.state, r]));
      return [...all.values()].sort((a, b) => (touched(a) < touched(b) ? 1 : -1)).slice(0, 14);
    });
    const load = () => get('/v1/jobs?limit=50').then((l) => { if (!over) merge(l.items.map(listed)); }, () => { if (!over) again = setTimeout(load, 5000); });
    const stop = onEvent((batch) => {
      const jobs = batch.filter((e) => e.kind === 'job' && e.job).map((e) => slim(e.job));
      if (jobs.length) merge(jobs);
    });
    load();
    return () => {
      over = true;
      clearTimeout(again);
      stop();
    };
  }, []);
  if (!rows?.length) return html`<${Empty}>${rows ? 'Nothing yet.' : 'Loading…'}<//>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of the latest changes"><table class="plain"><tbody>${rows.map((j) => html`<tr key=${j.id + j.state}><td class="n"><${Ago} at=${touched(j)} suffix=" ago" /></td><td><${State} of=${j.state} /></td><td><${JobLink} id=${j.id} /></td><td><${Name} of=${j.name} /></td><td><${Name} of=${j.user} /></td><td class="grow">${[kind(j), outcome(j), j.on.length && 'on ' + j.on.map(plain).join(', ')].filter(Boolean).join(' · ')}</td></tr>`)}</tbody></table></div>`;
}
