// Questions before something is destroyed, and short notices of what was done.

import { html, useLayoutEffect, useRef, useState } from './lib.js';
import { Store, useStore } from './store.js';
import { plain } from './format.js';
import { Field } from './parts.js';

const question = new Store(null);
const notices = new Store([]);

// ask shows what an act hits and waits for the answer: null for no, otherwise the values of the fields. A field is
// { name, label, type, hint }.
export function ask({ title, hits, action, danger = true, fields = [] }) {
  return new Promise((done) => question.set({ title, hits, action, danger, fields, done }));
}

// act runs a change, says what became of it, and returns whether it succeeded.
export async function act(what, change) {
  try {
    await change();
    notice(what);
    return true;
  } catch (error) {
    notice(`${what}: ${plain(error.message)}`, true);
    return false;
  }
}

export function notice(text, bad = false) {
  const one = { text, bad, key: Math.random() };
  notices.set([...notices.value.slice(-3), one]);
  setTimeout(() => notices.set(notices.value.filter((n) => n !== one)), bad ? 15000 : 5000);
}

export function Notices() {
  return html`<div class="notices" role="status">${useStore(notices).map((n) => html`<p key=${n.key} class=${n.bad ? 'bad' : ''}>${n.bad ? '✕ ' : '✓ '}${n.text}</p>`)}</div>`;
}

export function Question() {
  const q = useStore(question);
  return q && html`<${Dialog} key=${q.title} label=${q.title} onClose=${() => { question.set(null); q.done(null); }}>${(close) => html`<${Form} q=${q} close=${close} />`}<//>`;
}

function Form({ q, close }) {
  const [values, setValues] = useState({});
  const submit = (e) => {
    e.preventDefault();
    question.set(null);
    q.done(values);
  };
  return html`<form onSubmit=${submit}>
    <h2>${plain(q.title)}</h2>
    ${q.hits.filter(Boolean).map((line) => html`<p>${line}</p>`)}
    ${q.fields.map((f) => html`<${Field} label=${f.label} hint=${f.hint}><input type="text" autocomplete="off" value=${values[f.name] || ''} onInput=${(e) => setValues({ ...values, [f.name]: e.target.value })} /><//>`)}
    <div class="acts"><button type="button" onClick=${close} autofocus>No, leave it</button><button type="submit" class=${q.danger ? 'danger' : 'main'}>${q.action}</button></div>
  </form>`;
}

// Dialog shows its content above the page. Escape closes it.
export function Dialog({ label, onClose, children }) {
  const ref = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.focus?.();
  }, []);
  const close = () => ref.current.close();
  return html`<dialog ref=${ref} aria-label=${plain(label)} onClose=${onClose}>${children(close)}</dialog>`;
}
