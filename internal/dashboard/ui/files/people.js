// The pages of users and of members.

import { html } from './lib.js';
import { useStore } from './store.js';
import { users, peers } from './resource.js';
import { A } from './router.js';
import { Head, Name, NodeState, NodeLink, Ago, Empty } from './parts.js';
import { bytes, count, percent, plain, plural, time, compare, NONE } from './format.js';

export function Users() {
  const list = useStore(users).data?.items;
  const project = new Map((list || []).filter((u) => !u.user).map((u) => [u.project, u.used]));
  const top = (u) => project.get(u.project) ?? u.used; // a project stands before its users
  const rows = (list || []).slice().sort((a, b) => top(b) - top(a) || compare(a.project, b.project) || Boolean(a.user) - Boolean(b.user) || b.used - a.used || compare(a.user, b.user));
  return html`<${Head} title="Users" fresh=${users} after=${html`<span class="note">what each has used, older use counting less, and the share that each should have</span>`} />
    ${!list ? html`<${Empty}>Loading…<//>` : !rows.length ? html`<${Empty}>Nobody has used anything yet.<//>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Users"><table class="plain rows"><thead><tr><th scope="col">User</th><th scope="col">Project</th><th scope="col" class="n">Tasks running</th><th scope="col" class="n">Tasks waiting</th><th scope="col" class="n">GPU hours</th><th scope="col" class="n">CPU hours</th><th scope="col" class="n">Of all use</th><th scope="col" class="n">Should be</th><th scope="col">Limits on a node</th></tr></thead><tbody>${rows.slice(0, 2000).map((u) => html`<tr key=${u.user + '/' + u.project}><th scope="row">${u.user ? html`<${A} href=${'/jobs?user=' + encodeURIComponent(u.user)}><${Name} of=${u.user} /><//>` : html`<i>all users</i>`}</th><td><${Name} of=${u.project} />${u.others ? html` <span class="note">and ${count(u.others)} others</span>` : ''}</td><td class="n">${count(u.running)}</td><td class="n">${count(u.waiting)}</td><td class="n">${hours(u.gpu_seconds)}</td><td class="n">${hours(u.cpu_seconds)}</td><td class="n">${percent(100 * u.used)}</td><td class="n">${percent(100 * u.share)}</td><td class="grow">${limits(u.limits)}</td></tr>`)}</tbody></table></div>`}`;
}

const hours = (s) => (s >= 0 ? (s / 3600).toFixed(s < 36000 ? 2 : 0) : NONE);

function limits(list) {
  if (!list?.length) return 'none';
  return list.map((l) => [l.tasks !== undefined && plural(l.tasks, 'task'), l.gpus !== undefined && plural(l.gpus, 'GPU'), l.cpus !== undefined && plural(l.cpus, 'CPU'), l.memory !== undefined && bytes(l.memory)].filter(Boolean).join(', ') + ` (${plural(l.nodes, 'node')})`).join('; ');
}

export function Members() {
  const list = useStore(peers).data?.items;
  const rows = (list || []).slice().sort((a, b) => compare(a.name, b.name));
  return html`<${Head} title="Members" fresh=${peers} after=${list && html`<span class="note">${plural(rows.length, 'daemon')}, as this one knows them</span>`} />
    ${!list ? html`<${Empty}>Loading…<//>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Members"><table class="plain rows"><thead><tr><th scope="col">Member</th><th scope="col">State</th><th scope="col">Roles</th><th scope="col" class="n">Last seen</th><th scope="col">Id</th><th scope="col">Addresses</th></tr></thead><tbody>${rows.map((p) => html`<tr key=${p.id}><th scope="row">${p.state === 'revoked' ? html`<${Name} of=${p.name || p.id} />` : html`<${NodeLink} id=${p.id} name=${p.name} />`}${p.self ? html` <span class="note">this daemon</span>` : ''}</th><td><${NodeState} of=${p.state} /></td><td>${plain(p.roles.join(', ')) || NONE}</td><td class="n">${p.self ? 'now' : html`<${Ago} at=${p.last_seen_at} suffix=" ago" />`}</td><td class="whole"><code>${plain(p.id)}</code></td><td class="grow">${p.revoked ? `revoked ${time(p.revoked.at)} by ${plain(p.revoked.by_name || p.revoked.by || 'the cluster key')}${p.revoked.reason ? `: ${plain(p.revoked.reason)}` : ''}` : html`${p.addrs.slice(0, 2).map((a) => html`<code class="row" title=${plain(a)}>${plain(a.replace('/p2p/' + p.id, ''))}</code>`)}${p.addrs.length > 2 ? `and ${p.addrs.length - 2} more` : ''}`}</td></tr>`)}</tbody></table></div>`}`;
}
