// Search in a log that is longer than what is kept of it: the bytes pass by and are forgotten.

const BLOCK = 1 << 20;

const lower = (c) => (c >= 65 && c <= 90 ? c + 32 : c);

// position returns where needle is in b, from an index on, without regard to the case of ASCII letters; -1 if nowhere.
export function position(b, needle, from) {
  const first = needle[0];
  for (let i = from; i <= b.length - needle.length; i++) {
    if (lower(b[i]) !== first) continue;
    let k = 1;
    while (k < needle.length && lower(b[i + k]) === needle[k]) k++;
    if (k === needle.length) return i;
  }
  return -1;
}

// last returns the last position of needle in front of an index, or -1.
function last(b, needle, before) {
  for (let i = Math.min(before, b.length - needle.length + 1) - 1; i >= 0; i--) {
    let k = 0;
    while (k < needle.length && lower(b[i + k]) === needle[k]) k++;
    if (k === needle.length) return i;
  }
  return -1;
}

export const needleOf = (text) => new TextEncoder().encode(text).map(lower);

// find returns the offset of the next match after an offset, or with back of the match before it; -1 if there is none.
// tell is called with the offset that the search has reached.
export async function find(log, text, offset, back, signal, tell) {
  const needle = needleOf(text);
  if (!needle.length) return -1;
  const overlap = needle.length - 1;
  if (!back) {
    for (let at = offset; ;) {
      const { start, bytes, short } = await log.read(at, BLOCK, signal);
      const i = position(bytes, needle, 0);
      if (i >= 0) return start + i;
      tell(start + bytes.length);
      if ((short && start + bytes.length >= log.size) || !bytes.length) return -1;
      at = start + Math.max(1, bytes.length - overlap);
    }
  }
  for (let end = offset; end > 0;) {
    const from = Math.max(0, end - BLOCK);
    const { start, bytes } = await log.read(from, end - from + overlap, signal);
    const i = last(bytes, needle, end - start);
    if (i >= 0) return start + i;
    tell(from);
    end = from;
  }
  return -1;
}
