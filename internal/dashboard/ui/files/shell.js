// Commands as a shell reads and writes them.

// words splits a line as a shell does, without expanding anything; null if a quote does not end.
export function words(line) {
  const out = [];
  let word = null;
  for (let i = 0; i < line.length; i++) {
    const c = line[i];
    if (/\s/.test(c)) {
      if (word !== null) out.push(word);
      word = null;
    } else if (c === "'") {
      const end = line.indexOf("'", i + 1);
      if (end < 0) return null;
      word = (word ?? '') + line.slice(i + 1, end);
      i = end;
    } else if (c === '"') {
      word ??= '';
      for (i++; line[i] !== '"'; i++) {
        if (i >= line.length) return null;
        if (line[i] === '\\' && '"\\$`'.includes(line[i + 1])) i++;
        word += line[i];
      }
    } else if (c === '\\' && i + 1 < line.length) {
      word = (word ?? '') + line[++i];
    } else word = (word ?? '') + c;
  }
  if (word !== null) out.push(word);
  return out;
}

// quote writes a word so that a shell reads it as it is.
export const quote = (word) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
