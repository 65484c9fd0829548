// The secret of this tab: how it is obtained, kept and sent. Nothing else in the dashboard knows of it. There are no
// cookies, because all ports of a host share them.
//
// At the door of `muster ui` the secret is traded for the one-time code in the address. At a daemon that listens with
// --http it is the token that a person types.

const KEY = 'muster.secret';
const TRADE = '/door/trade';
const TICKETS = '/v1/tickets';

// The code leaves the address before anything else happens, so that it is in no history and no screenshot.
const code = new URLSearchParams(location.hash.slice(1)).get('code');
if (code !== null) history.replaceState(null, '', location.pathname + location.search);

// Another address of the door, opened in this tab, differs in the code only, so browsers do not load the page again.
addEventListener('hashchange', () => { if (new URLSearchParams(location.hash.slice(1)).has('code')) location.reload(); });

let kept = null; // where the browser keeps nothing for pages

function secret() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return kept;
  }
}

// keep keeps the secret for this tab; null forgets it.
export function keep(value) {
  kept = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch { /* kept has it */ }
}

// begin trades the code for a secret, if the address had one. If the code was used before, the first request is refused,
// unless the tab has a secret.
export async function begin() {
  if (code === null) return;
  const resp = await fetch(TRADE, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }), cache: 'no-store', credentials: 'omit', redirect: 'error',
  });
  if (resp.ok) keep((await resp.json()).secret);
}

// headers returns what each request carries.
export function headers() {
  const value = secret();
  return value ? { Authorization: 'Bearer ' + value } : {};
}

// atDoor reports whether a refusal is that of the door of muster ui, which gives codes, and not that of a daemon.
export function atDoor(resp) { return (resp.headers.get('WWW-Authenticate') || '').includes('muster ui'); }

// socket opens a WebSocket. It cannot carry headers, so it carries a ticket that opens one connection to this target.
export async function socket(target) {
  const resp = await fetch(TICKETS, { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify({ target }), cache: 'no-store', credentials: 'omit' });
  const doc = await resp.json().catch(() => ({}));
  if (!resp.ok) throw new Error(doc.detail || 'There is no ticket for a terminal: the answer has status ' + resp.status + '.');
  const url = new URL(target, location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  const ws = new WebSocket(url, ['muster', 'muster.ticket.' + doc.ticket]);
  ws.binaryType = 'arraybuffer';
  return ws;
}
