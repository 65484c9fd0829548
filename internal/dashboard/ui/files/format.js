// Numbers, times and names as people read them. What is not known is a dash, never 0.

export const NONE = '–';

export const known = (n) => typeof n === 'number' && Number.isFinite(n);

export function bytes(n) {
  if (!known(n) || n < 0) return NONE;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return (n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)) + ' ' + units[i];
}

const grouped = new Intl.NumberFormat('en'); // to make one for each number takes longer than all else in a table
export const count = (n) => (known(n) && n >= 0 ? grouped.format(n) : NONE);
export const percent = (n) => (known(n) && n >= 0 ? Math.round(n) + ' %' : NONE);

// part is a share of a whole in percent, -1 if it is not known.
export const part = (n, of) => (known(n) && n >= 0 && of > 0 ? (100 * n) / of : -1);

export function duration(seconds) {
  if (!known(seconds) || seconds < 0) return NONE;
  const s = Math.floor(seconds);
  if (s < 60) return s + 's';
  if (s < 3600) return Math.floor(s / 60) + 'm ' + two(s % 60) + 's';
  if (s < 86400) return Math.floor(s / 3600) + 'h ' + two(Math.floor(s / 60) % 60) + 'm';
  return Math.floor(s / 86400) + 'd ' + two(Math.floor(s / 3600) % 24) + 'h';
}

const two = (n) => String(n).padStart(2, '0');

export function time(text) {
  const t = Date.parse(text);
  if (Number.isNaN(t)) return NONE;
  const d = new Date(t);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

// here is a time by our clock that was told by one that is ahead by so many seconds.
export function here(text, ahead) {
  const d = new Date(Date.parse(text) - 1000 * ahead);
  return ahead && !isNaN(d) ? d.toISOString() : text;
}

// ago is the time since an instant, at the time now.
export function ago(text, now) {
  const t = Date.parse(text);
  return Number.isNaN(t) ? NONE : duration(Math.max(0, (now - t) / 1000));
}

// ran is how long something ran that may still run.
export function ran(start, end, now) {
  const a = Date.parse(start);
  if (Number.isNaN(a)) return NONE;
  const b = Date.parse(end);
  return duration(Math.max(0, ((Number.isNaN(b) ? now : b) - a) / 1000));
}

// What could move or hide text on a screen: control characters, and those that turn its direction around.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

// plain returns text that somebody else chose, with such characters made visible.
export function plain(text) {
  if (text === undefined || text === null) return '';
  return String(text).replace(HIDDEN, (c) => {
    const n = c.charCodeAt(0);
    return n < 32 ? String.fromCharCode(0x2400 + n) : n === 127 ? '\u2421' : '\ufffd';
  });
}

export const short = (id) => (id && id.length > 14 ? '…' + id.slice(-8) : id || NONE);
export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;

// compare orders names with numbers in them as people count: n2 before n10.
export const compare = new Intl.Collator('en', { numeric: true }).compare;
