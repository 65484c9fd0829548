// The frame of the dashboard: its pages, the way between them, and what is said when the daemon is gone.

import { html, render, useState } from './lib.js';
import { begin, keep } from './session.js';
import { link } from './api.js';
import { start } from './events.js';
import { useStore, clock } from './store.js';
import { place, A } from './router.js';
import { daemon } from './resource.js';
import { duration, plain } from './format.js';
import { Question, Notices } from './dialog.js';
import { listen, Shortcuts, showHelp } from './keys.js';
import { Overview } from './overview.js';
import { Gpus } from './gpus.js';
import { Topology } from './topology.js';
import { Jobs } from './jobs.js';
import { JobPage } from './job.js';
import { Nodes, NodePage } from './nodes.js';
import { Submit } from './submit.js';
import { Users, Members } from './people.js';

// The pages: the path, the name in the navigation, and what is drawn.
const PAGES = [
  ['/', 'Overview', Overview], ['/gpus', 'GPUs', Gpus], ['/jobs', 'Jobs', Jobs], ['/nodes', 'Nodes', Nodes], ['/topology', 'Topology', Topology],
  ['/users', 'Users', Users], ['/members', 'Members', Members], ['/submit', 'Submit', Submit],
];

// isPage tells whether there is a page at a path.
function isPage(path) {
  const [, kind, id] = path.split('/');
  return PAGES.some(([p]) => p === path) || ((kind === 'jobs' || kind === 'nodes') && !!id);
}

function Page({ path }) {
  const page = PAGES.find(([p]) => p === path);
  if (page) return html`<${page[2]} />`;
  const [, kind, id, tab] = path.split('/');
  if (kind === 'jobs' && id) return html`<${JobPage} key=${id} id=${decoded(id)} tab=${tab || 'story'} />`;
  if (kind === 'nodes' && id) return html`<${NodePage} key=${id} id=${decoded(id)} />`;
  return html`<header class="head"><h1 tabindex="-1">Not found</h1></header><p class="empty">The dashboard has no page at this address. <${A} href="/">To the overview<//></p>`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function App() {
  const { path } = useStore(place);
  const { ok, refused } = useStore(link);
  const here = '/' + path.split('/')[1];
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector('main h1')?.focus(); }}>Skip to the content</a>
    <nav aria-label="Pages"><${A} href="/" class="brand">muster<//><ul>${PAGES.map(([p, name]) => html`<li><${A} href=${p} aria-current=${p === here ? 'page' : undefined}>${name}<//></li>`)}<li><a href="/docs">Docs</a></li></ul><${Who} /></nav>
    <${Banner} />
    <main id="main" class=${ok || refused ? '' : 'stale'}>${refused && isPage(path) ? html`<${Refused} />` : html`<${Page} path=${path} />`}</main>
    <${Question} /><${Shortcuts} /><${Notices} />`;
}

function Who() {
  const d = useStore(daemon).data;
  const [theme, setTheme] = useState(document.documentElement.dataset.theme || '');
  const turn = () => {
    const dark = theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    const next = dark ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem('muster.theme', next); } catch { /* storage is off: for this page only */ }
    setTheme(next);
  };
  return html`<div class="who">${d && html`<span title=${`cluster ${plain(d.cluster)}, version ${plain(d.version)}`}>at ${plain(d.name)}</span>`}<button type="button" onClick=${turn} aria-label="Light or dark" title="Light or dark">◐</button><button type="button" onClick=${showHelp} aria-label="Keyboard shortcuts" title="Keyboard shortcuts">?</button></div>`;
}

function Banner() {
  const { ok, since, detail, refused } = useStore(link);
  const now = useStore(clock);
  if (ok || refused) return null;
  return html`<div class="banner" role="alert">✕ No answer from the daemon for ${duration(Math.max(0, now - since) / 1000)}: ${detail}. What is shown is from before. It comes back by itself.</div>`;
}

function Refused() {
  const [token, setToken] = useState('');
  const { door, detail } = useStore(link);
  const submit = (e) => {
    e.preventDefault();
    keep(token.trim());
    location.reload();
  };
  return html`<header class="head"><h1 tabindex="-1">This tab is not let in</h1></header>
    ${detail && html`<p class="note">${plain(detail)}</p>`}
    ${door ? html`<p>Its code was used, or is older than a minute, or it has none. Press Enter in the terminal where <code>muster ui</code> runs, and open the address that it prints.</p>` : html`<form onSubmit=${submit} class="narrow"><label class="field"><span>The token of this daemon: the content of its file http-token</span><input type="password" autocomplete="off" value=${token} onInput=${(e) => setToken(e.target.value)} /></label><button class="main" disabled=${!token.trim()}>Use it in this tab</button></form>`}`;
}

// A daemon that is gone is asked again, even by pages that ask for nothing by themselves.
function revive() {
  link.watch(() => {
    document.body.classList.toggle('gone', !link.value.ok);
    if (link.value.ok) for (const r of [daemon]) if (r.watchers.size) r.soon();
  });
}

async function main() {
  const root = document.getElementById('app');
  try {
    await begin();
  } catch (err) {
    render(html`<main><header class="head"><h1>This link does not work</h1></header><p>${err.message}</p></main>`, root);
    return;
  }
  revive();
  listen(PAGES);
  render(html`<${App} />`, root);
  start();
}

main();

