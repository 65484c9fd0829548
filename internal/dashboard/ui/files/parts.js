// Small parts that many pages draw.

import { html, Component, useState, useEffect, useRef } from './lib.js';
import { useStore, clock } from './store.js';
import { link } from './api.js';
import { ago, ran, time, plain, NONE, duration } from './format.js';
import { JOB, NODE } from './states.js';
import { A } from './router.js';

export function State({ of, table = JOB }) {
  const [sign, tone] = table[of] || ['·', 'wait'];
  return html`<span class=${'state ' + tone}><i aria-hidden="true">${sign}</i>${plain(of)}</span>`;
}

export const NodeState = ({ of }) => html`<${State} of=${of} table=${NODE} />`;

// Ago is a time as its distance from now; the title has the time itself.
export function Ago({ at, suffix = '' }) {
  const now = useStore(clock);
  return at ? html`<time datetime=${at} title=${time(at)}>${ago(at, now)}${suffix}</time>` : NONE;
}

export function Ran({ from, to }) {
  const now = useStore(clock);
  return html`<span>${ran(from, to, now)}</span>`;
}

// Name is text that somebody else chose.
export const Name = ({ of, none = NONE }) => html`<span class="name" dir="auto">${plain(of) || none}</span>`;

export const JobLink = ({ id, children }) => html`<${A} href=${'/jobs/' + encodeURIComponent(id)} class="id">${children || id}<//>`;
export const NodeLink = ({ id, name }) => (id ? html`<${A} href=${'/nodes/' + encodeURIComponent(id)}><${Name} of=${name || id} /><//>` : NONE);

// Bar shows parts of a whole. Its text says the same.
export function Bar({ parts, label }) {
  return html`<span class="bar" role="img" aria-label=${label}>${parts.map(([tone, p]) => html`<i class=${tone} style=${{ width: Math.max(0, Math.min(100, p)) + '%' }}></i>`)}</span>`;
}

// Fresh says how old what the page shows is, and who was silent.
export function Fresh({ of }) {
  const now = useStore(clock);
  const { at, data, error } = useStore(of);
  const silent = data?.partial || [];
  const age = at ? Math.max(0, now - at) / 1000 : -1;
  return html`<p class="fresh">
    ${at ? (age < 15 ? 'up to date' : `as of ${duration(age)} ago`) : 'loading…'}
    ${silent.length ? html`<span class="warn"> · no answer from ${silent.slice(0, 8).map(plain).join(', ')}${silent.length > 8 ? ` and ${silent.length - 8} more` : ''}</span>` : ''}
    ${error && link.value.ok ? html`<span class="bad"> · ${plain(error.message)}</span>` : ''}
  </p>`;
}

export function Head({ title, children, fresh, after }) {
  useEffect(() => { document.title = `${typeof title === 'string' ? plain(title) : 'muster'} · muster`; }, [title]);
  return html`<header class="head"><h1 tabindex="-1"><${Name} of=${title} /></h1>${after}<div class="acts">${children}</div>${fresh && html`<${Fresh} of=${fresh} />`}</header>`;
}

// useGradually returns how many of n parts to draw: a step more each time, so that a long page does not hold up the tab.
export function useGradually(n, step) {
  const [drawn, setDrawn] = useState(step);
  useEffect(() => {
    if (drawn >= n) return undefined;
    const t = setTimeout(() => setDrawn(drawn + step));
    return () => clearTimeout(t);
  }, [drawn, n]);
  return drawn;
}

// Drawn is drawn again only when one of its properties is another.
export class Drawn extends Component {
  shouldComponentUpdate(next) { return Object.keys(next).some((k) => next[k] !== this.props[k]); }
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export function Failure({ error }) {
  if (!error) return null;
  return html`<div class="failure" role="alert"><p>${plain(error.message)}</p>${error.errors?.length ? html`<ul>${error.errors.map((e) => html`<li>${plain(e.message)}</li>`)}</ul>` : ''}</div>`;
}

export function Field({ label, hint, children }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<small>${hint}</small>`}</label>`;
}

// Facts is a list of names and values.
export const Facts = ({ rows }) => html`<dl class="facts">${rows.filter(Boolean).map(([k, v, wide]) => html`<div class=${wide}><dt>${k}</dt><dd>${v === '' || v === undefined || v === null ? NONE : v}</dd></div>`)}</dl>`;

// Labels shows the labels of a node. A label that no inviter has signed is the node's own claim.
export function Labels({ of, signed = {} }) {
  const keys = Object.keys(of || {}).sort();
  if (!keys.length) return NONE;
  return html`<span class="labels">${keys.map((k) => html`<span class="label" title=${k in signed ? 'signed by an inviter' : 'stated by the node itself'}>${plain(k)}=${plain(of[k])}${k in signed ? html`<i aria-label="signed">✓</i>` : ''}</span>`)}</span>`;
}

export function Copy({ text, label = 'Copy' }) {
  const [done, setDone] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    timer.current = setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" onClick=${copy}>${done ? 'Copied' : label}</button>`;
}
