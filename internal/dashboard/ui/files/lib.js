// What every module of the dashboard draws with: Preact, its hooks, and htm in place of JSX.

import { h, render, Fragment, Component } from './vendor/preact.mjs';
import htm from './vendor/htm.mjs';

export const html = htm.bind(h);
export { h, render, Fragment, Component };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useReducer } from './vendor/preact-hooks.mjs';
