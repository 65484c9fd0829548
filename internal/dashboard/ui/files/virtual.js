// A long list of which only the visible rows are drawn.

import { html, useState, useRef, useLayoutEffect, useEffect } from './lib.js';

// Virtual draws rows of one height. It scrolls by itself and can be walked through with the arrow keys. onNear is called when the end
// of the list comes near.
export function Virtual({ count, height, row, label, onNear, head, total }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, size: 600 });
  const measure = () => {
    const el = box.current;
    if (!el) return;
    setView((v) => (v.top === el.scrollTop && v.size === el.clientHeight ? v : { top: el.scrollTop, size: el.clientHeight }));
  };
  useLayoutEffect(() => {
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / height) - 5);
  const last = Math.min(count, Math.ceil((view.top + view.size) / height) + 5);
  useEffect(() => { if (onNear && last > count - 50) onNear(); }, [last, count]);
  const keys = (e) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 20, PageUp: -20, Home: -count, End: count }[e.key];
    const now = e.target.closest?.('[data-row]');
    if (!step || !now || e.target.closest('input,select')) return;
    e.preventDefault();
    const to = Math.max(0, Math.min(count - 1, Number(now.dataset.row) + step));
    const el = box.current;
    if (to * height < el.scrollTop + height) el.scrollTop = to * height - height;
    else if ((to + 2) * height > el.scrollTop + el.clientHeight) el.scrollTop = (to + 2) * height - el.clientHeight;
    measure();
    requestAnimationFrame(() => requestAnimationFrame(() => el.querySelector(`[data-row="${to}"] a`)?.focus({ preventScroll: true })));
  };
  const rows = [];
  for (let i = first; i < last; i++) rows.push(row(i, { top: i * height + 'px', height: height + 'px' }));
  return html`<div class="virtual" ref=${box} role="table" aria-label=${label} aria-rowcount=${(total ?? count) + 1} onScroll=${measure} onKeyDown=${keys}>
    <div role="rowgroup" class="vhead">${head}</div>
    <div role="rowgroup" class="vbody" style=${{ height: count * height + 'px' }}>${rows}</div>
  </div>`;
}
