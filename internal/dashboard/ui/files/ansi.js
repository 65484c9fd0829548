// Terminal output as rows of spans: where a row ends, and which parts of it have which colour. Of the control sequences
// only colours count. All others, such as those that write the clipboard or make links, are dropped.

const ESC = 0x1b;
const PLAIN = Object.freeze({ fg: -1, bg: -1, bold: false, dim: false, italic: false, under: false, inverse: false });
const MAX_SEQUENCE = 4096; // bytes of a control sequence; a longer one ends here, so that it cannot hide the rest

// sequence returns the end of the control sequence at i, or -1 if the bytes end before it does. A line break always
// ends it.
export function sequence(b, i, end) {
  const kind = b[i + 1];
  const stop = Math.min(end, i + MAX_SEQUENCE);
  if (i + 1 >= end) return -1;
  if (kind === 0x5b) { // CSI: parameters, then one final byte
    for (let k = i + 2; k < stop; k++) {
      if (b[k] >= 0x40 && b[k] <= 0x7e) return k + 1;
      if (b[k] === 10 || b[k] === ESC) return k;
    }
    return stop < end ? stop : -1;
  }
  if (kind === 0x5d || kind === 0x50 || kind === 0x58 || kind === 0x5e || kind === 0x5f) { // OSC, DCS, SOS, PM, APC: up to BEL or ST
    for (let k = i + 2; k < stop; k++) {
      if (b[k] === 7) return k + 1;
      if (b[k] === ESC) return k + 1 < end && b[k + 1] === 0x5c ? k + 2 : k + 1 < end ? k : -1;
      if (b[k] === 10) return k;
    }
    return stop < end ? stop : -1;
  }
  if (kind === ESC || kind === 10) return i + 1;
  if (kind >= 0x20 && kind <= 0x2f) return i + 2 < end ? (b[i + 2] === 10 ? i + 2 : i + 3) : -1;
  return i + 2;
}

// restyle returns the style after a sequence, which is the same unless the sequence sets colours.
export function restyle(style, b, i, end) {
  if (b[i + 1] !== 0x5b || b[end - 1] !== 0x6d) return style;
  const text = String.fromCharCode(...b.subarray(i + 2, Math.min(end - 1, i + 130)));
  if (/[^0-9;:]/.test(text)) return style;
  const codes = text.split(/[;:]/).map(Number);
  let s = { ...style };
  for (let k = 0; k < codes.length; k++) {
    const c = codes[k];
    if (c === 0) s = { ...PLAIN };
    else if (c === 1) s.bold = true;
    else if (c === 2) s.dim = true;
    else if (c === 3) s.italic = true;
    else if (c === 4) s.under = true;
    else if (c === 7) s.inverse = true;
    else if (c === 22) s.bold = s.dim = false;
    else if (c === 23) s.italic = false;
    else if (c === 24) s.under = false;
    else if (c === 27) s.inverse = false;
    else if (c >= 30 && c <= 37) s.fg = c - 30;
    else if (c === 39) s.fg = -1;
    else if (c >= 40 && c <= 47) s.bg = c - 40;
    else if (c === 49) s.bg = -1;
    else if (c >= 90 && c <= 97) s.fg = c - 82;
    else if (c >= 100 && c <= 107) s.bg = c - 92;
    else if (c === 38 || c === 48) {
      const [colour, used] = extended(codes, k + 1);
      if (colour !== null) s[c === 38 ? 'fg' : 'bg'] = colour;
      k += used;
    }
  }
  return s;
}

// extended reads a colour of 256 or of 16 million. The first 16 are names, so that they follow the theme.
function extended(codes, k) {
  if (codes[k] === 5) {
    const n = codes[k + 1];
    if (!(n >= 0 && n < 256)) return [null, 2];
    if (n < 16) return [n, 2];
    if (n >= 232) return [rgb(8 + 10 * (n - 232), 8 + 10 * (n - 232), 8 + 10 * (n - 232)), 2];
    const level = (v) => (v ? 55 + 40 * v : 0);
    return [rgb(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6)), 2];
  }
  if (codes[k] === 2) return [rgb(codes[k + 1], codes[k + 2], codes[k + 3]), 4];
  return [null, 1];
}

const clamp = (n) => (n >= 0 ? Math.min(255, n) : 0);
const rgb = (r, g, b) => `rgb(${clamp(r)},${clamp(g)},${clamp(b)})`;

// Indexer finds where rows begin in bytes that come in pieces. A row is a line, or as much of it as fits. The offsets of the
// first count rows in the buffer are in offsets, and the styles they begin with in styles. Both only grow: a fast log has
// millions of rows, and an object for each, or an array for each frame, would fill the memory faster than it is collected.
export class Indexer {
  constructor(columns) {
    this.columns = Math.max(20, columns);
    this.count = 0;
    this.offsets = new Int32Array(1024);
    this.styles = [];
    this.reset(0);
  }

  reset(at) {
    this.count = 0;
    this.at = at;
    this.style = PLAIN;
    this.column = 0;
    this.fresh = true; // the next byte begins a line
    this.returned = false;
  }

  // feed reads b from where it stopped before, up to end. It stops earlier in front of a sequence that is not complete,
  // unless last says that nothing follows.
  feed(b, end, last) {
    let i = this.at;
    while (i < end) {
      const c = b[i];
      if (c === 10) {
        if (this.fresh) this.begin(i);
        this.fresh = true;
        this.returned = false;
        i++;
        continue;
      }
      if (this.fresh) this.begin(i);
      if (c === ESC) {
        const next = sequence(b, i, end);
        if (next < 0 && !last) break;
        this.style = restyle(this.style, b, i, next < 0 ? end : next);
        i = next < 0 ? end : next;
        continue;
      }
      if (c === 13) {
        this.returned = true;
        i++;
        continue;
      }
      if (this.returned) { // what is written after a carriage return takes the place of the row
        this.returned = false;
        this.column = 0;
        this.offsets[this.count - 1] = i;
        this.styles[this.count - 1] = this.style;
      }
      const width = c === 9 ? 8 - (this.column % 8) : c < 32 || (c >= 0x80 && c < 0xc0) ? 0 : (c >= 0xe3 && c <= 0xed) || c >= 0xf0 ? 2 : 1;
      if (width && this.column + width > this.columns) this.begin(i);
      this.column += width;
      i++;
    }
    this.at = i;
  }

  begin(at) {
    if (this.count === this.offsets.length) {
      const more = new Int32Array(2 * this.count);
      more.set(this.offsets);
      this.offsets = more;
    }
    this.offsets[this.count] = at;
    this.styles[this.count++] = this.style;
    this.column = 0;
    this.fresh = false;
  }

  // shift forgets the rows in front of an offset, and moves the others there. It returns how many it forgot. The row to which
  // the next bytes belong stays, whatever is left of it.
  shift(by) {
    let k = 0;
    while (k < this.count && this.offsets[k] < by) k++;
    if (k > 0 && k === this.count && !this.fresh) k--;
    this.offsets.copyWithin(0, k, this.count);
    this.styles.copyWithin(0, k, this.count);
    this.count -= k;
    for (let i = 0; i < this.count; i++) this.offsets[i] = Math.max(0, this.offsets[i] - by);
    this.at -= by;
    return k;
  }
}

const decoder = new TextDecoder('utf-8'); // what is not UTF-8 becomes U+FFFD
// What is left of control characters, and what turns the direction of text around.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

// spans returns the parts of one row: { text, style }.
export function spans(b, from, to, style) {
  const out = [];
  const add = (a, z) => {
    const text = z > a ? decoder.decode(b.subarray(a, z)).replace(UNSEEN, '') : '';
    if (text) out.push({ text, style });
  };
  let start = from;
  for (let i = from; i < to;) {
    if (b[i] !== ESC) {
      i++;
      continue;
    }
    add(start, i);
    const next = sequence(b, i, to);
    const end = next < 0 ? to : next;
    style = restyle(style, b, i, end);
    start = i = end;
  }
  add(start, to);
  return out;
}

// look returns the class and the style of a span.
export function look(s) {
  const [fg, bg] = s.inverse ? [s.bg === -1 ? 'back' : s.bg, s.fg === -1 ? 'front' : s.fg] : [s.fg, s.bg];
  const names = [s.bold && 'b', s.dim && 'd', s.italic && 'i', s.under && 'u'];
  const style = {};
  if (typeof fg === 'number' && fg >= 0) names.push('f' + fg);
  else if (fg === 'back') names.push('fback');
  else if (typeof fg === 'string') style.color = bg === -1 ? `oklch(from ${fg} clamp(var(--from), l, var(--to)) c h)` : fg; // readable on our background
  if (typeof bg === 'number' && bg >= 0) names.push('g' + bg);
  else if (bg === 'front') names.push('gfront');
  else if (typeof bg === 'string') style.backgroundColor = bg;
  return { class: names.filter(Boolean).join(' ') || undefined, style: Object.keys(style).length ? style : undefined };
}
