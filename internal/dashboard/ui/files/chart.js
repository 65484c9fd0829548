// A chart of percentages over time.

import { html, useEffect, useRef } from './lib.js';
import uPlot from './vendor/uplot.mjs';

const TONES = ['--accent', '--ink'];

export function Chart({ data, names, label, height = 120 }) {
  const box = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const el = box.current;
    const css = getComputedStyle(document.documentElement);
    const tone = (name) => css.getPropertyValue(name).trim();
    const axis = { stroke: tone('--dim'), grid: { stroke: tone('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
    plot.current = new uPlot({
      width: el.clientWidth, height, legend: { show: false }, cursor: { show: false }, padding: [6, 8, 0, 0],
      scales: { y: { range: [0, 100] } },
      axes: [{ ...axis, size: 24, values: '{HH}:{mm}:{ss}', space: 80 }, { ...axis, size: 44, splits: [0, 50, 100], values: (_, v) => v.map((n) => n + ' %') }],
      series: [{}, ...names.map((name, i) => ({ label: name, stroke: tone(TONES[i]), width: 1.5, dash: i ? [4, 3] : undefined, points: { show: false }, spanGaps: false }))],
    }, data, el);
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: el.clientWidth, height }));
    watch.observe(el);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [names.length, document.documentElement.dataset.theme]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${box}></div>`;
}
