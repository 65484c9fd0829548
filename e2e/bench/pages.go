package main

// The dashboard in Debian's Chromium.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/procfs"

	"github.com/musterhq/muster/internal/testkit/chromium"
)

const (
	tourRounds = 10               // 12 min
	tourStay   = 12 * time.Second // at each page
)

// watcher runs in each page before its own code: it notes when there is data, and how long each long task took.
const watcher = `window.bench = {long: [], first: 0};
new PerformanceObserver((l) => { for (const e of l.getEntries()) bench.long.push(e.duration); }).observe({type: 'longtask', buffered: true});
new MutationObserver((_, o) => { if (document.querySelector('table.capacity')) { o.disconnect(); requestAnimationFrame(() => setTimeout(() => { bench.first = performance.now(); })); } }).observe(document, {childList: true, subtree: true});`

// changesSeen notes how old each change is when the overview shows it.
const changesSeen = `(() => { const all = document.querySelector('[aria-labelledby=o-new]'); const times = () => [...all.querySelectorAll('time')].map((t) => t.dateTime);
const seen = new Set(times()); bench.late = [];
new MutationObserver(() => { const now = Date.now(); for (const t of times()) if (!seen.has(t)) { seen.add(t); bench.late.push(now - Date.parse(t)); } }).observe(all, {childList: true, subtree: true, attributes: true, attributeFilter: ['datetime']});
return true; })()`

// tab is the tab of a browser of its own.
type tab struct {
	ctx     context.Context //nolint:containedctx // chromedp keeps the tab in it
	address string          // of the dashboard, with a code
}

// browse opens a browser before the door of a daemon. Where there is none it says so, and nothing is measured.
func browse(ctx context.Context, program, socket string, measure func(t *tab) error) error {
	browser, err := chromium.Program()
	if errors.Is(err, chromium.ErrNone) {
		fmt.Fprintf(os.Stderr, "left out: %v\n", err)
		return nil
	}
	address, leave, err := door(ctx, program, socket)
	if err != nil {
		return err
	}
	defer leave()
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := &tab{address: address}
	var stop func()
	t.ctx, stop = chromium.New(ctx, browser, dir, 1280, 800, nil)
	defer stop()
	if err := chromedp.Do(t.ctx); err != nil {
		return fmt.Errorf("chromium did not start: %w", err)
	}
	if _, err := chromedp.Call(t.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watcher}); err != nil {
		return err
	}
	return measure(t)
}

func (t *tab) open(address string) error { return chromedp.Do(t.ctx, chromedp.Navigate(address)) }

// eval returns the value of an expression of the page, which may be a promise.
func eval[T any](t *tab, expression string) (T, error) {
	v, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		err = fmt.Errorf("evaluate %.200s: %w", expression, err)
	}
	return v, err
}

// until waits until an expression of the page is true.
func (t *tab) until(expression string) error {
	for began := time.Now(); time.Since(began) < 2*time.Minute; wait(t.ctx, 20*time.Millisecond) {
		yes, err := eval[bool](t, expression)
		if err != nil || yes {
			return err
		}
	}
	return fmt.Errorf("was not true in 2 min: %s", expression)
}

// memory is what Chromium calls the private memory of a tab, in MB: that of the largest process that draws pages.
func (t *tab) memory() (most float64, err error) {
	all, err := chromedp.CallBrowser(t.ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		return 0, err
	}
	for _, x := range all.ProcessInfo {
		p, err := procfs.NewProc(int(x.ID))
		if err != nil || x.Type != "renderer" {
			continue
		}
		if s, err := p.NewStatus(); err == nil {
			most = max(most, float64(s.RssAnon+s.VmSwap)/1e6)
		}
	}
	return most, nil
}

// pages measures the dashboard of a fed server.
func pages(ctx context.Context, program, socket string, r *report) error {
	return browse(ctx, program, socket, func(t *tab) error {
		if err := t.first(r); err != nil {
			return err
		}
		return t.tour(ctx, r)
	})
}

// first measures how soon the first page has data, and its code.
func (t *tab) first(r *report) error {
	if err := t.open(t.address); err != nil {
		return err
	}
	for n, label := range []string{"empty cache, nobody looked before", "again", "again", "again", "again", "again"} {
		if n > 0 {
			if err := chromedp.Do(t.ctx, chromedp.Reload()); err != nil {
				return err
			}
		}
		if err := t.until("bench.first > 0"); err != nil {
			return err
		}
		took, err := eval[float64](t, "bench.first")
		if err != nil {
			return err
		}
		r.value("page-first", label, took)
	}
	code, err := eval[float64](t, `[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource').filter((e) => e.name.includes('/ui/'))].reduce((n, e) => n + e.encodedBodySize, 0)`)
	r.value("page-code", "", code/1e3)
	return err
}

// tour walks through the pages as a person does, and measures the longest task of each, and what stays in memory.
func (t *tab) tour(ctx context.Context, r *report) error {
	stops := []string{"/", "/gpus", "/jobs", "/nodes", "/topology", "/users"}
	longest := make([]float64, len(stops))
	for range tourRounds {
		for i, path := range stops {
			if _, err := eval[bool](t, fmt.Sprintf("bench.long = [], document.querySelector('nav li a[href=%q]').click(), true", path)); err != nil {
				return err
			}
			for range tourStay / time.Second {
				wait(ctx, time.Second)
				if _, err := eval[bool](t, "(document.querySelector('.virtual') || {}).scrollTop += 2800, true"); err != nil {
					return err
				}
			}
			took, err := eval[float64](t, "Math.max(0, ...bench.long)")
			if err != nil {
				return err
			}
			longest[i] = max(longest[i], took)
		}
	}
	for i, path := range stops {
		r.value("page-long", path, longest[i])
	}
	after := fmt.Sprintf("after %.0f min", (tourRounds * time.Duration(len(stops)) * tourStay).Minutes())
	for _, label := range []string{after, after + " and a collection of garbage"} {
		heap, err := chromedp.Call(t.ctx, runtime.GetHeapUsage, cdp.Empty{})
		if err != nil {
			return err
		}
		r.value("page-heap", label, heap.UsedSize/1e6)
		if _, err := chromedp.Call(t.ctx, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return err
		}
	}
	memory, err := t.memory()
	r.value("page-memory", "", memory)
	return err
}

// pageChanges measures the changes that a fed server is told of.
func pageChanges(ctx context.Context, program, socket string, r *report) error {
	return browse(ctx, program, socket, func(t *tab) error {
		return t.changes(ctx, r, "50 changes a second", func() error { wait(ctx, 30*time.Second); return ctx.Err() })
	})
}

// pageChanges measures the jobs of two daemons in the page of a third.
func (c *cluster) pageChanges(ctx context.Context, r *report) error {
	return browse(ctx, c.program, c.socket(2), func(t *tab) error {
		return t.changes(ctx, r, "3 daemons, a job at a time", func() error {
			for range 50 {
				spec := command("/bin/sleep", "0.7")
				spec.NodeList = []string{"dev3"}
				if _, err := finish(ctx, c.clients[0], spec); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// changes measures how old the changes that cause makes are when the overview shows them.
func (t *tab) changes(ctx context.Context, r *report, label string, cause func() error) error {
	if err := t.open(t.address); err != nil {
		return err
	}
	if err := t.until("bench.first > 0"); err != nil {
		return err
	}
	wait(ctx, 5*time.Second) // the daemon has its picture then
	if _, err := eval[bool](t, changesSeen); err != nil {
		return err
	}
	if err := cause(); err != nil {
		return err
	}
	late, err := eval[[]float64](t, "bench.late")
	if err != nil {
		return err
	}
	if len(late) < 100 {
		return fmt.Errorf("the page showed %d changes, want 100 at least", len(late))
	}
	slices.Sort(late)
	for _, q := range []float64{0.5, 0.99} {
		r.value("page-change", fmt.Sprintf("%s, p%.0f", label, 100*q), late[int(q*float64(len(late)-1))])
	}
	return nil
}
