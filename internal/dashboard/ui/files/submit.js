// The form for a new job: what would take it now, and the command line that does the same.

import { html, useState, useEffect, useMemo, useRef } from './lib.js';
import { post } from './api.js';
import { go } from './router.js';
import { Head, Failure, Field, Copy, Empty } from './parts.js';
import { plain, plural } from './format.js';
import { Explanation } from './why.js';
import { words, quote } from './shell.js';

// The fields: the name, the label, a hint, the option of the command line, and how the value enters the job file.
const whole = (text) => (/^\d+$/.test(text) ? Number(text) : text);
const FIELDS = [
  ['name', 'Name', '', '--name', (s, v) => { s.name = v; }],
  ['cpus', 'CPUs', '1 if empty', '--cpus', (s, v) => { s.resources.cpus = whole(v); }],
  ['mem', 'Memory', 'such as 8GiB', '--mem', (s, v) => { s.resources.memory = v; }],
  ['gpus', 'GPUs', 'of each task', '--gpus', (s, v) => { s.resources.gpus = whole(v); }],
  ['model', 'GPU model', 'such as H100', '', (s, v) => { s.resources.gpu_model = v; }],
  ['gpumem', 'GPU memory', 'at least, each', '--gpu-mem', (s, v) => { s.resources.gpu_memory = v; }],
  ['nodes', 'Nodes', 'more than 1: a gang', '--nodes', (s, v) => { s.nodes = whole(v); }],
  ['array', 'Array', 'such as 0-99%8', '--array', (s, v) => { s.array = v; }],
  ['time', 'Time limit', 'such as 90m', '--time', (s, v) => { s.time_limit = v; }],
  ['priority', 'Priority', '0 to 100, 50 if empty', '--priority', (s, v) => { s.priority = whole(v); }],
  ['retries', 'Retries', '', '--retries', (s, v) => { s.retries = whole(v); }],
  ['project', 'Project', '', '--project', (s, v) => { s.project = v; }],
  ['constraint', 'Constraint', 'such as rack=r1', '--constraint', (s, v) => { s.constraint = v; }],
  ['image', 'Image', 'without one: a process', '--image', (s, v) => { s.image = v; }],
];
const CHECKS = [['preemptible', 'may be preempted', '--preemptible'], ['hold', 'on hold at first', '--hold']];

// specOf returns the job file, or an error.
function specOf(f) {
  const spec = { resources: {} };
  const argv = words(f.command || '');
  if (argv === null) return { error: new Error('The command has a quote that does not end.') };
  if (f.script) spec.script = /^#!/.test(f.command) ? f.command : '#!/bin/sh\n' + f.command;
  else spec.command = argv;
  for (const [name, , , , put] of FIELDS) if (f[name]?.trim()) put(spec, f[name].trim());
  for (const [name] of CHECKS) if (f[name]) spec[name] = true;
  return { spec };
}

// lineOf returns the command line that submits the same. The GPUs of a gang are those of the whole job there.
function lineOf(f) {
  const out = ['muster', 'submit'];
  for (const [name, , , option] of FIELDS) {
    let v = f[name]?.trim();
    if (!v || !option) continue;
    if (name === 'gpus') v = (f.model?.trim() ? f.model.trim() + ':' : '') + (Number(f.nodes) > 1 && /^\d+$/.test(v) ? Number(v) * Number(f.nodes) : v);
    out.push(`${option}=${quote(v)}`);
  }
  for (const [name, , option] of CHECKS) if (f[name]) out.push(option);
  if (f.script) return `${out.join(' ')} - <<'EOF'\n${/^#!/.test(f.command) ? f.command : '#!/bin/sh\n' + f.command}\nEOF`;
  return `${out.join(' ')} -- ${(words(f.command || '') || []).map(quote).join(' ')}`;
}

export function Submit() {
  const [f, setF] = useState({ command: '' });
  const [offers, setOffers] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const key = useRef('');
  const made = useMemo(() => specOf(f), [f]);
  const ready = Boolean(f.command?.trim()) && !made.error;
  useEffect(() => {
    key.current = '';
    if (!ready) {
      setOffers(null);
      setError(made.error || null);
      return;
    }
    let over = false;
    const timer = setTimeout(async () => {
      try {
        const e = await post('/v1/offers', made.spec);
        if (!over) {
          setOffers(e);
          setError(null);
        }
      } catch (err) {
        if (!over) {
          setOffers(null);
          setError(err);
        }
      }
    }, 400);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [made]);
  const set = (name) => (e) => setF({ ...f, [name]: e.target.type === 'checkbox' ? e.target.checked : e.target.value });
  const submit = async (e) => {
    e.preventDefault();
    if (!ready || busy) return;
    setBusy(true);
    key.current ||= 'ui-' + [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, '0')).join(''); // a second click is the same job
    try {
      const j = await post('/v1/jobs', made.spec, { 'Idempotency-Key': key.current });
      go('/jobs/' + j.id);
    } catch (err) {
      setError(err);
      if (err.explanation) setOffers(err.explanation);
      setBusy(false);
    }
  };
  const line = lineOf(f);
  return html`<${Head} title="Submit a job" />
    <div class="submit"><form onSubmit=${submit}>
      <${Field} label=${f.script ? 'Script' : 'Command'} hint=${f.script ? 'run by /bin/sh unless it begins with #!' : 'a program and its arguments; quotes as in a shell, nothing is expanded'}><textarea rows=${f.script ? 10 : 3} spellcheck="false" data-filter required value=${f.command} onInput=${set('command')}></textarea><//>
      <label class="field check"><input type="checkbox" checked=${f.script} onChange=${set('script')} /><span>it is a script</span></label>
      <div class="fields">${FIELDS.map(([name, label, hint]) => html`<${Field} label=${label} hint=${hint}><input type="text" name=${name} autocomplete="off" value=${f[name] || ''} onInput=${set(name)} /><//>`)}</div>
      ${CHECKS.map(([name, label]) => html`<label class="field check"><input type="checkbox" checked=${f[name]} onChange=${set(name)} /><span>${label}</span></label>`)}
      <div class="acts"><button type="submit" class="main" disabled=${!ready || busy}>${busy ? 'Submitting…' : 'Submit'}</button></div>
    </form><section aria-labelledby="s-where"><h2 id="s-where">Where it could run</h2>
      <${Failure} error=${error} />
      <div role="status">${offers ? html`<p class="lead">${offers.now.length ? html`<b>${plural(offers.now.length, 'node')}</b> would take it now.` : offers.later.length ? html`It would wait: <b>${plural(offers.later.length, 'node')}</b> could take it once enough is free.` : html`<span class="bad">✕ Nothing in the cluster could ever run it.</span>`}</p>` : ''}</div>
      ${offers ? html`<${Explanation} e=${offers} />` : !error && html`<${Empty}>Type a command.<//>`}
      <h2>The same on the command line</h2><pre class="cmdline" tabindex="0" role="region" aria-label="Command line">${line.split('\n').map(plain).join('\n')}</pre><${Copy} text=${line} /></section></div>`;
}
