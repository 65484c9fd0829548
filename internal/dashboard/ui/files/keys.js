// Keyboard shortcuts, and the dialog that lists them.

import { html } from './lib.js';
import { Store, useStore } from './store.js';
import { Dialog } from './dialog.js';
import { go } from './router.js';

const help = new Store(false);

// After g, one of these letters goes to a page.
const LETTERS = { o: '/', g: '/gpus', j: '/jobs', n: '/nodes', t: '/topology', u: '/users', m: '/members', s: '/submit' };

const LIST = [
  ['?', 'this list'], ['/', 'to the filter or search of the page'], ['g then o g j n t u m s', 'Overview, GPUs, Jobs, Nodes, Topology, Users, Members, Submit'],
  ['j k or ↓ ↑', 'to the next or previous row of a list'], ['Page Up, Page Down, Home, End', 'further in a list or a log'], ['← → ↑ ↓', 'between the nodes of the map'],
  ['Space', 'in a log: pause, or go on'], ['n, N', 'in a log: next or previous match'], ['Escape', 'close a dialog; leave a field'],
];

export function showHelp() { help.set(true); }

// listen handles keys that are pressed anywhere but in a field.
export function listen() {
  let g = 0;
  addEventListener('keydown', (e) => {
    const field = e.target.closest?.('input,textarea,select,.terminal');
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector('dialog[open]')) return;
    if (field) {
      if (e.key === 'Escape' && !field.classList.contains('terminal')) e.target.blur();
      return;
    }
    const after = Date.now() - g < 1500;
    g = 0;
    if (after && LETTERS[e.key]) go(LETTERS[e.key]);
    else if (e.key === 'g') g = Date.now();
    else if (e.key === '?') help.set(true);
    else if (e.key === '/') document.querySelector('[data-filter]')?.focus();
    else if (e.key === 'j' || e.key === 'ArrowDown') {
      if (e.target !== document.body && !e.target.matches?.('h1')) return;
      const first = document.querySelector('main [data-row] a, main .rows tbody a');
      if (!first) return;
      first.focus();
    } else return;
    e.preventDefault();
  });
  addEventListener('keydown', rows);
}

// rows moves between the rows of a table.
function rows(e) {
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[e.key];
  const row = step && e.target.matches?.('a,button') && e.target.closest('.rows tbody tr');
  if (!row || e.ctrlKey || e.metaKey || e.altKey) return;
  const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
  e.preventDefault();
  next?.querySelector('a')?.focus();
}

export function Shortcuts() {
  return useStore(help) && html`<${Dialog} label="Keyboard shortcuts" onClose=${() => help.set(false)}>${(close) => html`<h2>Keyboard shortcuts</h2><dl class="keys">${LIST.map(([k, text]) => html`<div><dt><kbd>${k}</kbd></dt><dd>${text}</dd></div>`)}</dl><div class="acts"><button type="button" onClick=${close} autofocus>Close</button></div>`}<//>`;
}
