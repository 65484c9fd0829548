// The states of jobs, tasks, nodes and GPUs: a sign and a tone for each, so that none is told by colour alone.

import { count, plain } from './format.js';

export const JOB = {
  PENDING: ['○', 'wait', 'PD'], HELD: ['Ⅱ', 'wait', 'HD'], RESERVED: ['◔', 'wait', 'RS'], STARTING: ['◑', 'busy', 'ST'],
  RUNNING: ['●', 'busy', 'R'], UNREACHABLE: ['?', 'warn', 'UN'], COMPLETING: ['◕', 'busy', 'CG'], SUCCEEDED: ['✓', 'done', 'CD'],
  FAILED: ['✕', 'bad', 'F'], CANCELLED: ['⊘', 'done', 'CA'], TIMEOUT: ['◷', 'bad', 'TO'], OUT_OF_MEMORY: ['▲', 'bad', 'OOM'],
  NODE_FAIL: ['↯', 'bad', 'NF'], PREEMPTED: ['↩', 'warn', 'PR'],
};

export const NODE = {
  ready: ['●', 'busy'], draining: ['◐', 'warn'], suspect: ['?', 'warn'], lost: ['✕', 'bad'], revoked: ['⊘', 'bad'],
};

// Package job has these lists, and a test compares them.
const ENDED = ['SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL', 'PREEMPTED'];
export const BARRING = ['Dependency', 'DependencyNeverSatisfied', 'BeginTime', 'ArrayThrottle'];

export const ended = (s) => ENDED.includes(s);
export const running = (s) => ['STARTING', 'RUNNING', 'UNREACHABLE', 'COMPLETING'].includes(s);
export const waiting = (s) => ['PENDING', 'HELD', 'RESERVED'].includes(s);

// tally is how many tasks are in the states that f wants.
export const tally = (counts, f) => Object.entries(counts || {}).reduce((sum, [s, n]) => sum + (f(s) ? n : 0), 0);

// answers reports whether what a node says of itself is of now.
export const answers = (node) => node.state === 'ready' || node.state === 'draining';

// gpuState is the one word that the map shows of a GPU.
export function gpuState(g, node) {
  if (node && !answers(node)) return 'silent';
  if (g.health !== 'healthy' && g.health !== '') return g.health === 'unknown' ? 'unknown' : 'unhealthy';
  if (g.free < 1) return g.free > 0 ? 'shared' : 'allocated';
  return node && node.state === 'draining' ? 'draining' : 'free';
}

export const GPU = {
  free: 'free', allocated: 'allocated', shared: 'partly allocated', draining: 'free, node draining', unhealthy: 'unhealthy', unknown: 'health unknown', silent: 'node silent',
};

// kind says whether a job is an array, a gang, or an array of gangs.
export function kind(j) {
  const gang = j.nodes > 1 ? `gang of ${j.nodes}` : '';
  const array = j.array ? `array ${plain(j.array)}` : '';
  return array && gang ? `${array} × ${gang}` : array || gang;
}

// outcome is why a job waits or how it ended, as far as its state does not tell that; of an array, how many tasks failed.
export function outcome(j) {
  const failed = tally(j.counts, (s) => ended(s) && s !== 'SUCCEEDED' && s !== 'CANCELLED');
  if (j.array) return [failed && `${count(failed)} failed`, !ended(j.state) && plain(j.reason)].filter(Boolean).join(' · ');
  return plain(j.reason) || (j.state === 'FAILED' && j.exit ? `exit code ${j.exit}` : '');
}
