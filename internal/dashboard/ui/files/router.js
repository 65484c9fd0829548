// Which page is shown: the path, and its parameters.

import { html } from './lib.js';
import { Store } from './store.js';

function read() {
  return { path: location.pathname.replace(/\/+$/, '') || '/', params: new URLSearchParams(location.search) };
}

export const place = new Store(read());

addEventListener('popstate', () => place.set(read()));

// go shows a page. With replace the page before is not kept in the history.
export function go(to, { replace = false } = {}) {
  const other = place.value.path;
  if (replace) history.replaceState(null, '', to);
  else if (to !== location.pathname + location.search) history.pushState(null, '', to);
  place.set(read());
  if (place.value.path !== other) {
    scrollTo(0, 0);
    requestAnimationFrame(() => document.querySelector('main h1')?.focus({ preventScroll: true }));
  }
}

// setParams changes parameters of the page; an empty value removes one.
export function setParams(changes) {
  const q = new URLSearchParams(place.value.params);
  for (const [k, v] of Object.entries(changes)) {
    if (v) q.set(k, v);
    else q.delete(k);
  }
  const text = q.toString();
  go(place.value.path + (text ? '?' + text : ''), { replace: true });
}

// A is a link to a page of the dashboard.
export function A({ href, children, ...rest }) {
  const click = (e) => {
    if (e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    go(href);
  };
  return html`<a href=${href} onClick=${click} ...${rest}>${children}</a>`;
}
