// A value that components can watch.

import { useReducer, useEffect } from './lib.js';

export class Store {
  constructor(value) {
    this.value = value;
    this.watchers = new Set();
  }

  set(value) {
    this.value = value;
    this.tell();
  }

  tell() { for (const f of [...this.watchers]) f(); }

  // watch calls f after each change, until the returned function is called.
  watch(f) {
    this.watchers.add(f);
    return () => this.watchers.delete(f);
  }
}

// useStore redraws the component with each change of a store, and returns its value.
export function useStore(store) {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const stop = store.watch(redraw);
    redraw(); // a change between the first drawing and now
    return stop;
  }, [store]);
  return store.value;
}

// clock is the time in milliseconds, by the second. It stands still in a hidden tab.
export const clock = new Store(Date.now());
setInterval(() => { if (!document.hidden) clock.set(Date.now()); }, 1000);
