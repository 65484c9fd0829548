// The topology: which nodes are near each other, as their labels tell, and how the GPUs of a node are linked.

import { html, useState, useMemo } from './lib.js';
import { useStore } from './store.js';
import { nodes } from './resource.js';
import { Head, Name, NodeLink, NodeState, Empty, useGradually } from './parts.js';
import { plain, plural, compare, NONE } from './format.js';
import { answers } from './states.js';

const LEVELS = ['spine', 'leaf', 'rack']; // from far to near
const LINKS = { nvlink: 'NVLink', board: 'the same board', switch: 'PCIe switch', bridge: 'PCIe host bridge', numa: 'the same NUMA node', system: 'across sockets' };

export function Topology() {
  const list = useStore(nodes).data?.items;
  const levels = useMemo(() => LEVELS.filter((l) => (list || []).some((n) => l in n.labels)), [list]);
  const [chosen, choose] = useState('');
  const drawn = useGradually((list || []).length, 50);
  if (!list) return html`<${Head} title="Topology" fresh=${nodes} /><${Empty}>Loading…<//>`;
  const node = list.find((n) => n.id === chosen) || list.find((n) => n.gpus.length > 1) || list[0];
  return html`<${Head} title="Topology" fresh=${nodes} after=${html`<span class="note">${levels.length ? 'by the labels ' + levels.join(', ') : 'no node has a label spine, leaf or rack'}</span>`} />
    <div class="topology"><section aria-label="Network">${html`<${Level} top drawn=${drawn} list=${list} levels=${levels} choose=${choose} chosen=${node?.id} />`}</section>
    ${node && html`<section aria-labelledby="t-links"><h2 id="t-links">Links between the GPUs of <${NodeLink} id=${node.id} name=${node.name} /></h2><${Links} node=${node} /></section>`}</div>`;
}

// Level draws nodes, grouped by the labels levels: as many of them as drawn.
function Level({ top, drawn, list, levels, choose, chosen }) {
  if (!levels.length) {
    return html`<ul class="leaves">${list.slice().sort((a, b) => compare(a.name, b.name)).slice(0, drawn).map((n) => html`<li key=${n.id}><button type="button" aria-pressed=${n.id === chosen ? 'true' : 'false'} onClick=${() => choose(n.id)}><${Name} of=${n.name} /> ${answers(n) ? '' : html`<${NodeState} of=${n.state} />`}<small>${n.gpus.length ? plural(n.gpus.length, 'GPU') : ''}${island(n)}</small></button></li>`)}</ul>`;
  }
  const [level, ...rest] = levels;
  const groups = new Map();
  for (const n of list) {
    const value = n.labels[level] ?? '';
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(n);
  }
  let left = drawn;
  const sorted = [...groups].sort((a, b) => compare(a[0], b[0])).map(([value, members]) => [value, members, (left -= members.length) + members.length]);
  return html`<ul class="tree">${sorted.map(([value, members, room]) => room > 0 && html`<li key=${value}><details open=${top || list.length <= 130 || groups.size === 1}><summary><b>${level} ${plain(value) || NONE}</b> <small>${plural(members.length, 'node')}, ${plural(members.reduce((n, m) => n + m.gpus.length, 0), 'GPU')}${members.every(answers) ? '' : html`, <span class="warn">${members.filter((m) => !answers(m)).length} silent</span>`}</small></summary><${Level} drawn=${room} list=${members} levels=${rest} choose=${choose} chosen=${chosen} /></details></li>`)}</ul>`;
}

const island = (n) => (n.gpus.some((g) => g.links?.some((l) => l.kind === 'nvlink')) ? ', NVLink' : '');

function Links({ node }) {
  if (node.gpus.length < 2) return html`<${Empty}>It has ${node.gpus.length ? 'only one GPU' : 'no GPU'}.<//>`;
  const cell = (a, b) => {
    if (a === b) return html`<td class="self"><span class="sr">itself</span></td>`;
    const l = (a.links || []).find((x) => x.to === b.uuid);
    return l ? html`<td class=${l.kind} title=${LINKS[l.kind] || plain(l.kind)}>${l.kind === 'nvlink' ? `NV${l.nvlinks || ''}` : plain(l.kind)}</td>` : html`<td title="not known">${NONE}</td>`;
  };
  const kinds = [...new Set(node.gpus.flatMap((g) => (g.links || []).map((l) => l.kind)))];
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Links"><table class="links"><thead><tr><td></td>${node.gpus.map((g) => html`<th scope="col">${g.index}</th>`)}</tr></thead><tbody>${node.gpus.map((a) => html`<tr><th scope="row">${a.index}</th>${node.gpus.map((b) => cell(a, b))}</tr>`)}</tbody></table></div>
    <p class="note">${kinds.map((k) => (k === 'nvlink' ? 'NV and a number: active NVLink connections' : `${plain(k)}: ${LINKS[k] || 'another link'}`)).join('; ')}${node.gpus.some((g) => g.simulated) ? '; these GPUs are simulated' : ''}</p>`;
}
