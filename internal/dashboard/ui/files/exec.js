// A terminal in a running task: xterm.js at one end of a WebSocket, a command of the person's choice at the other.

import { html, useState, useEffect, useRef } from './lib.js';
import { socket } from './session.js';
import { useStore } from './store.js';
import { place, setParams } from './router.js';
import { Failure, Empty } from './parts.js';
import { plain } from './format.js';
import { words } from './shell.js';
import { running } from './states.js';

// The first byte of each message; see the route exec.
const STDIN = 0;
const RESIZE = 1;
const STDOUT = 2;
const STDERR = 3;
const END = 4;

export function ExecTab({ job }) {
  const { params } = useStore(place);
  const task = Number(params.get('task')) || 0;
  const [command, setCommand] = useState('sh -i');
  const [on, setOn] = useState(null);
  const [error, setError] = useState(null);
  const doc = job.tasks?.find((t) => t.task === task);
  const state = doc?.state || job.state;
  const start = (e) => {
    e.preventDefault();
    const argv = words(command);
    setError(argv ? null : new Error('The command has a quote that does not end.'));
    if (argv?.length) setOn({ argv, key: Math.random() });
  };
  return html`<form class="filter" onSubmit=${start}>${job.task_count > 1 && html`<label class="inline">Task <input type="text" inputmode="numeric" size="6" value=${task} onChange=${(e) => setParams({ task: e.target.value.trim() })} /></label>`}
      <input type="text" class="command" aria-label="Command" value=${command} onInput=${(e) => setCommand(e.target.value)} /><button type="submit" class="main" disabled=${!running(state) || Boolean(on)}>Run it in the task</button>${on && html`<button type="button" onClick=${() => setOn(null)}>End it</button>`}</form>
    <${Failure} error=${error} />
    ${on ? html`<${Terminal} key=${on.key} target=${`/v1/jobs/${encodeURIComponent(job.id)}/tasks/${task}/exec`} argv=${on.argv} failed=${setError} />` : running(state) ? html`<p class="note">The command runs on the task's host, as its user, with its environment and limits.</p>` : html`<${Empty}>The task does not run.<//>`}`;
}

function Terminal({ target, argv, failed }) {
  const box = useRef(null);
  const [said, setSaid] = useState('connecting…');
  useEffect(() => {
    let over = false;
    let end = () => {};
    connect(box.current, target, argv, setSaid).then((stop) => {
      end = stop;
      if (over) stop();
    }, (err) => {
      setSaid('');
      failed(err);
    });
    return () => {
      over = true;
      end();
    };
  }, []);
  return html`<div class="terminal" ref=${box}></div><p class="note" role="status">${said} <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>Escape</kbd> leaves the terminal.</p>`;
}

async function connect(box, target, argv, say) {
  const [{ Terminal: XTerm }, { FitAddon }] = await Promise.all([import('./vendor/xterm.mjs'), import('./vendor/xterm-fit.mjs'), style()]);
  const css = getComputedStyle(document.documentElement);
  const tone = (name) => css.getPropertyValue(name).trim();
  const term = new XTerm({
    documentOverride: strict(), fontFamily: tone('--mono'), fontSize: 13, scrollback: 5000, screenReaderMode: true, linkHandler: { activate() {} },
    theme: { background: tone('--term'), foreground: tone('--term-ink'), cursor: tone('--term-ink'), cursorAccent: tone('--term') },
  });
  for (const n of [8, 52]) term.parser.registerOscHandler(n, () => true); // no links, and no writing to the clipboard
  const fit = new FitAddon();
  term.loadAddon(fit);
  document.createElement = create; // a part of the terminal asks the page's own document, but only while it is opened
  try {
    term.open(box);
  } finally {
    delete document.createElement;
  }
  fit.fit();
  const ws = await socket(target);
  const send = (kind, bytes) => {
    if (ws.readyState !== WebSocket.OPEN) return;
    const m = new Uint8Array(bytes.length + 1);
    m[0] = kind;
    m.set(bytes, 1);
    ws.send(m);
  };
  const enc = new TextEncoder();
  ws.onopen = () => {
    say('open');
    ws.send(enc.encode(JSON.stringify({ command: argv, tty: true, term: 'xterm-256color', rows: term.rows, cols: term.cols })));
    term.focus();
  };
  ws.onmessage = (e) => {
    const m = new Uint8Array(e.data);
    if (m[0] === STDOUT || m[0] === STDERR) term.write(m.subarray(1));
    else if (m[0] === END) {
      const r = JSON.parse(new TextDecoder().decode(m.subarray(1)));
      say(r.error ? plain(r.error) : `ended with exit code ${r.code}`);
    }
  };
  ws.onclose = () => say((now) => (now === 'open' || now === 'connecting…' ? 'the connection has ended' : now));
  term.onData((text) => send(STDIN, enc.encode(text)));
  term.onResize(({ rows, cols }) => send(RESIZE, enc.encode(JSON.stringify({ rows, cols }))));
  term.attachCustomKeyEventHandler((e) => {
    if (!(e.ctrlKey && e.shiftKey && e.key === 'Escape')) return true;
    document.querySelector('.tabs a')?.focus();
    return false;
  });
  const watch = new ResizeObserver(() => fit.fit());
  watch.observe(box);
  return () => {
    watch.disconnect();
    ws.close();
    term.dispose();
  };
}

// style loads the style sheet of xterm.js once.
function style() {
  const href = new URL('./vendor/xterm.css', import.meta.url).href;
  if (document.querySelector(`link[href="${href}"]`)) return undefined;
  return new Promise((done) => {
    const l = Object.assign(document.createElement('link'), { rel: 'stylesheet', href });
    l.onload = l.onerror = done;
    document.head.append(l);
  });
}

// create makes elements for xterm.js. The terminal writes style elements and style attributes, which our policy forbids;
// what it writes there is set through the object model instead, which the policy allows.
function create(name, options) {
  if (name === 'style') return sheet();
  const el = Document.prototype.createElement.call(document, name, options);
  const set = el.setAttribute.bind(el);
  el.setAttribute = (k, v) => {
    if (k === 'style') el.style.cssText = v;
    else set(k, v);
  };
  return el;
}

// strict is the document for xterm.js, with create.
const strict = () => new Proxy(document, {
  get(of, key) {
    if (key === 'createElement') return create;
    const value = Reflect.get(of, key, of);
    return typeof value === 'function' ? value.bind(of) : value;
  },
});

// sheet stands for a style element: what is written to it becomes a style sheet of the document.
function sheet() {
  const rules = new CSSStyleSheet();
  const el = Document.prototype.createElement.call(document, 'template');
  Object.defineProperty(el, 'textContent', { get: () => '', set: (text) => rules.replaceSync(text) });
  const gone = el.remove.bind(el);
  el.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== rules);
    gone();
  };
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, rules];
  return el;
}
