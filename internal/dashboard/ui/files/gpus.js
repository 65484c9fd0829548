// The map of all GPUs: a cell for each, grouped by node, and nodes by a label.

import { html, Component, useState, useMemo } from './lib.js';
import { useStore } from './store.js';
import { nodes } from './resource.js';
import { place, setParams, A } from './router.js';
import { Head, Name, Empty, JobLink, NodeLink, NodeState, useGradually } from './parts.js';
import { bytes, percent, plain, plural, compare, NONE } from './format.js';
import { GPU, gpuState, answers } from './states.js';
import { userOf } from './holders.js';

export function Gpus() {
  const list = useStore(nodes).data?.items;
  const { params } = useStore(place);
  const f = { state: params.get('state') || '', model: params.get('model') || '', label: params.get('label') || '', user: params.get('user') || '', group: params.get('group') || '' };
  const owners = useStore(userOf);
  const [open, setOpen] = useState('');
  const view = useMemo(() => list && pick(list, f, owners), [list, owners, JSON.stringify(f)]);
  const drawn = useGradually(view ? view.nodes : 0, 50);
  if (!list) return html`<${Head} title="GPUs" fresh=${nodes} /><${Empty}>Loading…<//>`;
  if (!list.some((n) => n.gpus.length)) return html`<${Head} title="GPUs" fresh=${nodes} /><${Empty}>No node of this cluster has a GPU.<//>`;
  const dense = view.gpus > 600 ? 'tiny' : view.gpus > 96 ? 'small' : 'large';
  const chosen = list.find((n) => n.id === open) || view.groups[0]?.[1][0].node;
  return html`<${Head} title="GPUs" fresh=${nodes} after=${html`<span class="note">${plural(view.gpus, 'GPU')} on ${plural(view.nodes, 'node')}</span>`} />
    <${Filter} f=${f} list=${list} owners=${owners} counts=${view.counts} />
    <${Legend} />
    ${view.gpus === 0 ? html`<${Empty}>No GPU matches the filter.<//>` : ''}
    <div class=${'map ' + dense} onKeyDown=${walk} onFocusIn=${(e) => e.target.dataset?.node && setOpen(e.target.dataset.node)} onMouseOver=${(e) => { const id = e.target.closest?.('[data-node]')?.dataset.node; if (id) setOpen(id); }}>
      ${view.groups.map(([name, members, above], g) => above < drawn && html`<section key=${name} aria-label=${name || 'GPUs'}>${name && html`<h2>${plain(name)} <small>${plural(members.length, 'node')}</small></h2>`}<div class="nodes">${members.slice(0, drawn - above).map((m, i) => html`<${Tile} key=${m.node.id} node=${m.node} shown=${m.shown} f=${f} dense=${dense} first=${g === 0 && i === 0} />`)}</div></section>`)}
    </div>
    ${chosen && html`<aside class=${'detail ' + dense} aria-label="The chosen node"><${Detail} node=${chosen} owners=${owners} /></aside>`}`;
}

// pick returns the groups of nodes that have a GPU which passes the filter: name, nodes, and how many nodes are above it.
function pick(list, f, owners) {
  const groups = new Map();
  const counts = {};
  let gpus = 0;
  let n = 0;
  const [key, value] = f.label.split('=');
  for (const node of list) {
    if (f.label && !(key in node.labels && (value === undefined || node.labels[key] === value))) continue;
    const shown = node.gpus.filter((g) => {
      if (f.model && g.class !== f.model) return false;
      if (f.user && !g.jobs.some((j) => owners.get(j) === f.user)) return false;
      const s = gpuState(g, node);
      counts[s] = (counts[s] || 0) + 1;
      return !f.state || s === f.state;
    });
    if (!shown.length) continue;
    gpus += shown.length;
    n++;
    const group = f.group === 'model' ? shown[0].class : f.group ? `${f.group}=${node.labels[f.group] ?? NONE}` : '';
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push({ node, shown });
  }
  for (const members of groups.values()) members.sort((a, b) => compare(a.node.name, b.node.name));
  let above = 0;
  const sorted = [...groups].sort((a, b) => compare(a[0], b[0])).map(([name, members]) => [name, members, (above += members.length) - members.length]);
  return { gpus, nodes: n, counts, groups: sorted };
}

// looks is all that a cell shows.
const looks = (g, { node, dense }) => [g.uuid, g.index, g.simulated, gpuState(g, node), dense === 'large' ? g.utilization : level(g)].join();

// Tile is a node of the map. It is drawn again only when it would look different.
class Tile extends Component {
  shouldComponentUpdate(next) {
    return next.node.name !== this.props.node.name || next.node.state !== this.props.node.state || next.first !== this.props.first || next.dense !== this.props.dense ||
      next.shown.length !== this.props.shown.length || next.shown.some((g, i) => g !== this.props.shown[i] && looks(g, next) !== looks(this.props.shown[i], this.props));
  }

  render({ node, shown, dense, first }) {
    const states = {};
    for (const g of shown) states[gpuState(g, node)] = (states[gpuState(g, node)] || 0) + 1;
    const says = `, ${node.state}: ${Object.entries(states).map(([s, n]) => `${n} ${GPU[s]}`).join(', ')}`;
    return html`<${A} href=${'/nodes/' + encodeURIComponent(node.id)} class=${'tile ' + node.state} data-node=${node.id} aria-label=${dense === 'tiny' ? plain(node.name) + (shown[0].simulated ? ' sim' : '') + says : undefined} tabindex=${first ? 0 : -1}>
      <span class="tname">${node.state === 'ready' ? '' : html`<b aria-hidden="true">${node.state === 'draining' ? '◐ ' : '? '}</b>`}${plain(node.name)}${shown[0].simulated ? html` <span class="sim">sim</span>` : ''}</span>${dense === 'tiny' ? '' : html`<span class="sr">${says}</span>`}
      <span class="cells" aria-hidden="true">${shown.map((g) => html`<i class=${'cell ' + gpuState(g, node) + ' u' + level(g)}>${dense === 'large' ? html`<em>${g.index}</em><span>${g.utilization >= 0 && answers(node) ? percent(g.utilization) : NONE}</span>` : ''}</i>`)}</span><//>`;
  }
}

// level is the utilisation in tenths, or x if it is not known.
const level = (g) => (g.utilization >= 0 ? Math.round(g.utilization / 10) : 'x');

// walk moves the focus between nodes. Only one of them is a stop of the Tab key.
function walk(e) {
  const tiles = [...e.currentTarget.querySelectorAll('.tile')];
  const at = tiles.indexOf(e.target.closest('.tile'));
  if (at < 0) return;
  const box = tiles[at].getBoundingClientRect();
  const vertical = (dir) => {
    let best = at;
    let least = Infinity;
    tiles.forEach((t, i) => {
      const b = t.getBoundingClientRect();
      const dy = (b.top - box.top) * dir;
      if (dy > 4 && dy * 1000 + Math.abs(b.left - box.left) < least) [least, best] = [dy * 1000 + Math.abs(b.left - box.left), i];
    });
    return best;
  };
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tiles.length - 1 }[e.key] ?? (e.key === 'ArrowDown' ? vertical(1) : e.key === 'ArrowUp' ? vertical(-1) : at);
  if (to === at || !tiles[to]) return;
  e.preventDefault();
  tiles[at].tabIndex = -1;
  tiles[to].tabIndex = 0;
  tiles[to].focus();
}

function Filter({ f, list, owners, counts }) {
  const models = useMemo(() => [...new Set(list.flatMap((n) => n.gpus.map((g) => g.class)))].sort(), [list]);
  const labels = useMemo(() => [...new Set(list.flatMap((n) => Object.entries(n.labels).map(([k, v]) => `${k}=${v}`)))].sort(compare).slice(0, 400), [list]);
  const keys = useMemo(() => [...new Set(list.flatMap((n) => Object.keys(n.labels)))].sort(), [list]);
  const people = [...new Set(owners.values())].sort();
  const select = (name, text, options) => html`<select aria-label=${text} value=${f[name]} onChange=${(e) => setParams({ [name]: e.target.value })}><option value="">${text}</option>${options}</select>`;
  return html`<div class="filter" role="search" aria-label="Filter GPUs">
    ${select('state', 'any state', Object.keys(GPU).map((s) => html`<option value=${s}>${GPU[s]}${counts[s] ? ` (${counts[s]})` : ''}</option>`))}
    ${models.length > 0 && select('model', 'any model', models.map((m) => html`<option value=${m}>${plain(m)}</option>`))}
    ${labels.length > 0 && select('label', 'any label', labels.map((l) => html`<option value=${l}>${plain(l)}</option>`))}
    ${people.length > 0 && select('user', 'any user', people.map((u) => html`<option value=${u}>${plain(u)}</option>`))}
    ${select('group', 'not grouped', [html`<option value="model">by model</option>`, ...keys.map((k) => html`<option value=${k}>by ${plain(k)}</option>`)])}
  </div>`;
}

function Legend() {
  return html`<ul class="legend" aria-label="What the cells mean">${Object.entries(GPU).map(([s, text]) => html`<li><i class=${'cell u5 ' + s} aria-hidden="true"></i>${text}</li>`)}<li><span class="note">The height of the fill is the utilisation; striped: not known.</span></li></ul>`;
}

function Detail({ node, owners }) {
  return html`<h2><${NodeLink} id=${node.id} name=${node.name} /> <${NodeState} of=${node.state} /> <small>Point at another node, or walk with the arrow keys.</small></h2>
    <div class="scroll" tabindex="0" role="region" aria-label="GPUs of the node"><${GpuTable} node=${node} owners=${owners} /></div>`;
}

// GpuTable lists the GPUs of a node.
export function GpuTable({ node, owners }) {
  const live = answers(node);
  return html`<table class="plain"><thead><tr><th scope="col">GPU</th><th scope="col">Model</th><th scope="col">State</th><th scope="col" class="n">In use</th><th scope="col" class="n">Memory</th><th scope="col" class="n">°C</th><th scope="col" class="n">W</th><th scope="col">Held by</th></tr></thead><tbody>
    ${node.gpus.map((g) => html`<tr><th scope="row" title=${g.uuid}>${g.index}</th><td><${Name} of=${g.class} />${g.simulated ? html` <span class="sim">sim</span>` : ''}</td>
      <td title=${plain(g.detail)}>${GPU[gpuState(g, node)]}${g.free > 0 && g.free < 1 && live ? ` (${Math.round(100 * (1 - g.free))} %)` : ''}</td><td class="n">${live ? percent(g.utilization) : NONE}</td>
      <td class="n">${live && g.memory_used >= 0 ? bytes(g.memory_used) : NONE} of ${bytes(g.memory)}</td><td class="n">${(live && g.temperature) || NONE}</td><td class="n">${(live && g.power && Math.round(g.power)) || NONE}</td>
      <td>${live ? g.jobs.map((j) => html`<${JobLink} id=${j} />${owners.get(j) ? html` ${plain(owners.get(j))}` : ''} `) : NONE}</td></tr>`)}</tbody></table>`;
}

