// The view of a log: it follows while its end is visible, holds when it is paused, and can be anywhere.

import { html, useState, useEffect, useLayoutEffect, useMemo, useRef } from './lib.js';
import { useStore } from './store.js';
import { Log } from './logdata.js';
import { AllLog, MOST } from './logall.js';
import { find } from './logfind.js';
import { spans, look } from './ansi.js';
import { bytes, plain, count } from './format.js';
import { Failure, Copy } from './parts.js';
import { place, setParams } from './router.js';
import { ended } from './states.js';

const ROW = 18;

export function LogTab({ job }) {
  const { params } = useStore(place);
  const task = params.get('task') ?? '0';
  const stream = ['stdout', 'stderr'].includes(params.get('stream')) ? params.get('stream') : 'both';
  const attempt = Number(params.get('attempt')) || 0;
  const many = job.task_count > 1;
  const doc = job.tasks?.find((t) => String(t.task) === task);
  const all = task === 'all';
  const newest = doc?.attempt || 0;
  const numbers = (job.tasks || []).map((t) => t.task);
  const log = useMemo(() => (all ? new AllLog(job.id, numbers.length ? numbers : [0], stream) : new Log(job.id, Number(task) || 0, stream, attempt)), [job.id, task, stream, attempt, all && numbers.length]);
  return html`<div class="logtab"><div class="filter" role="group" aria-label="Which output">
      ${many && html`<label class="inline">Task <input type="text" inputmode="numeric" size="6" list="log-tasks" value=${task} onChange=${(e) => setParams({ task: e.target.value.trim(), attempt: '' })} /><datalist id="log-tasks"><option value="all">${`the first ${MOST} together`}</option>${(job.tasks || []).slice(0, 50).map((t) => html`<option value=${t.task}></option>`)}</datalist></label><button type="button" aria-pressed=${all ? 'true' : 'false'} onClick=${() => setParams({ task: all ? '' : 'all', attempt: '' })}>All tasks</button>`}
      <div class="choice" role="group" aria-label="Stream">${['both', 'stdout', 'stderr'].map((s) => html`<button type="button" aria-pressed=${s === stream ? 'true' : 'false'} onClick=${() => setParams({ stream: s === 'both' ? '' : s })}>${s}</button>`)}</div>
      ${newest > 1 && html`<select aria-label="Attempt" value=${attempt || ''} onChange=${(e) => setParams({ attempt: e.target.value })}><option value="">newest attempt</option>${(doc.attempts || []).map((a) => html`<option value=${a.attempt}>attempt ${a.attempt}, ${a.state}</option>`)}</select>`}
      ${all && job.task_count > MOST ? html`<span class="note">the first ${MOST} of ${count(job.task_count)} tasks</span>` : ''}
    </div>
    <${LogView} key=${[job.id, task, stream, attempt].join()} log=${log} state=${doc?.state || job.state} newest=${attempt ? 0 : newest} /></div>`;
}

// LogView draws a log. newest is the number of the newest attempt: when it changes, the log begins anew, unless it is
// paused.
function LogView({ log, state, newest }) {
  const version = useStore(log);
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const [paused, setPaused] = useState(false);
  const [mark, setMark] = useState(-1);
  const stick = useRef(true);
  const hold = useRef(false);
  hold.current = paused;

  const run = async () => {
    const over = await log.follow();
    // the daemon ends the answer where output was removed; what follows is asked for anew
    if (over && !hold.current && stick.current && log.size > log.end) run();
  };
  useEffect(() => {
    if (!hold.current) run();
    return () => log.close();
  }, [log, newest]);
  useEffect(() => { // a task that had not started, or whose log was asked for too early
    if (!paused && stick.current && !log.live && !log.loading && !ended(state)) {
      const t = setTimeout(() => { if (stick.current && !log.live && !hold.current) run(); }, 1500);
      return () => clearTimeout(t);
    }
  }, [version, state, paused]);

  const pause = () => {
    if (paused) {
      stick.current = true;
      hold.current = false;
      setPaused(false);
      run();
    } else {
      setPaused(true);
      log.close();
      log.loading = log.live = false;
      log.changed();
    }
  };

  useLayoutEffect(() => {
    const el = box.current;
    const probe = el.querySelector('.probe');
    const fit = () => {
      setHeight(el.clientHeight);
      log.columns(Math.floor((el.clientWidth - 20) / (probe.getBoundingClientRect().width / 50)));
    };
    fit();
    const watch = new ResizeObserver(fit);
    watch.observe(el);
    return () => watch.disconnect();
  }, [log]);
  useLayoutEffect(() => {
    const el = box.current;
    if (log.dropped) {
      if (!stick.current) el.scrollTop -= log.dropped * ROW;
      log.dropped = 0;
    }
    if (stick.current && !paused) el.scrollTop = el.scrollHeight;
  }, [version, height]);

  const scroll = async () => {
    const el = box.current;
    setTop(el.scrollTop);
    const bottom = el.scrollTop + el.clientHeight >= el.scrollHeight - ROW;
    if (paused || !bottom) stick.current = false;
    else if (!stick.current && log.end >= log.size && !log.loading) {
      stick.current = true;
      if (!log.live) run();
    }
    if (log.all || log.loading) return;
    if (el.scrollTop < 20 * ROW && log.start > 0) {
      if (log.live) {
        log.close();
        log.live = false;
      }
      const came = await log.more(true);
      el.scrollTop += came * ROW;
    } else if (bottom && log.end < log.size) {
      await log.more(false);
    }
  };
  const jump = async (offset) => {
    stick.current = false;
    const row = await log.jump(offset);
    if (row >= 0) box.current.scrollTop = Math.max(0, row * ROW - box.current.clientHeight / 3);
    return row;
  };
  const toEnd = () => {
    stick.current = true;
    setMark(-1);
    if (paused) pause();
    else if (!log.live || log.end < log.size) run();
    box.current.scrollTop = box.current.scrollHeight;
  };
  const keys = (e) => {
    const el = box.current;
    if (e.target.matches('input') || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === ' ') pause();
    else if (e.key === 'Home') jump(0);
    else if (e.key === 'End') toEnd();
    else if (e.key === 'PageUp') el.scrollTop -= el.clientHeight - ROW;
    else if (e.key === 'PageDown') el.scrollTop += el.clientHeight - ROW;
    else return;
    e.preventDefault();
  };

  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const last = Math.min(log.rows, Math.ceil((top + height) / ROW) + 10);
  const rows = [];
  for (let i = first; i < last; i++) rows.push(html`<${Row} key=${log.place(i)} log=${log} i=${i} end=${i === log.rows - 1 ? version : 0} marked=${mark >= 0 && i === log.rowAt(mark)} />`);
  const here = log.rows ? log.place(Math.min(log.rows - 1, Math.floor(top / ROW))) : 0;
  return html`<${Tools} log=${log} paused=${paused} pause=${pause} jump=${jump} toEnd=${toEnd} here=${here} mark=${mark} setMark=${setMark} state=${state} following=${stick.current && log.live && !paused} />
    <${Failure} error=${log.error} />
    <div class="log" ref=${box} tabindex="0" role="region" aria-label="Output" onScroll=${scroll} onKeyDown=${keys}>
      <span class="probe" aria-hidden="true">${'0'.repeat(50)}</span>
      <div class="logrows" style=${{ height: log.rows * ROW + 'px' }}><div style=${{ transform: `translateY(${first * ROW}px)` }}>${rows}</div></div>
      ${!log.rows && html`<p class="empty">${log.loading ? 'Loading…' : ended(state) ? 'It wrote nothing.' : log.live ? 'No output yet.' : ''}</p>`}
    </div>`;
}

function Row({ log, i, marked }) {
  if (i >= log.rows) return null;
  const [from, to] = log.bounds(i);
  return html`<div class=${'lrow' + (marked ? ' marked' : '')}>${spans(log.buf, from, to, log.index.styles[i]).map((s) => html`<span ...${look(s.style)}>${s.text}</span>`)}</div>`;
}

function Tools({ log, paused, pause, jump, toEnd, here, mark, setMark, state, following }) {
  const [text, setText] = useState('');
  const [said, setSaid] = useState('');
  const work = useRef(null);
  const search = async (back) => {
    if (!text || log.all) return;
    work.current?.abort();
    const mine = new AbortController();
    work.current = mine;
    setSaid('searching…');
    try {
      const from = back ? (mark >= 0 ? mark : log.end) : mark >= 0 ? mark + 1 : here;
      const at = await find(log, text, from, back, mine.signal, (o) => setSaid(`searching, at ${bytes(o)}`));
      if (work.current !== mine) return;
      if (at < 0) return void setSaid(back ? 'none before' : 'none after');
      setMark(at);
      setSaid(`at ${bytes(at)}`);
      await jump(at);
    } catch (error) {
      if (error.name !== 'AbortError') setSaid(plain(error.message));
    }
  };
  useEffect(() => () => work.current?.abort(), []);
  const keys = (e) => {
    if (e.key === 'Enter') search(e.shiftKey);
  };
  useEffect(() => {
    const key = (e) => {
      if ((e.key === 'n' || e.key === 'N') && !e.target.closest('input,textarea,select,.terminal') && !e.ctrlKey && !e.metaKey && text) {
        e.preventDefault();
        search(e.key === 'N');
      }
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  });
  const name = `${log.job}.${log.task}${log.stream === 'both' ? '' : '.' + log.stream}`;
  return html`<div class="logtools">
    <button type="button" aria-pressed=${paused ? 'true' : 'false'} onClick=${pause}>${paused ? '▶ Go on' : 'Ⅱ Pause'}</button><button type="button" onClick=${toEnd}>↓ End</button>
    ${!log.all && html`<input class="seek" type="range" min="0" max=${Math.max(1, log.size)} value=${here} aria-label="Place in the log" aria-valuetext=${`${bytes(here)} of ${bytes(log.size)}`} onChange=${(e) => jump(Number(e.target.value))} />
    <span class="find"><input type="search" data-filter placeholder="Search" aria-label="Search in the whole log" value=${text} onInput=${(e) => { setText(e.target.value); setSaid(''); setMark(-1); }} onKeyDown=${keys} /><button type="button" aria-label="Next match" disabled=${!text} onClick=${() => search(false)}>↓</button><button type="button" aria-label="Previous match" disabled=${!text} onClick=${() => search(true)}>↑</button></span>`}
    <span class="note" role="status">${said || (paused ? 'paused' : following ? (ended(state) ? 'complete' : 'following') : log.loading ? 'loading…' : ended(state) ? 'complete' : log.live ? 'more arrives below' : 'not following')} · ${log.all || !here ? '' : `${bytes(here)} of `}${bytes(log.size)}</span>
    ${!log.all && html`<${Copy} label="Copy command" text=${`muster logs -f ${name.split('.').slice(0, 2).join('.')}`} />`}
  </div>`;
}
