package files

// Reporting the progress of staging.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/worker/driver"
)

const (
	// reportEvery is how often progress is reported. Staging that is done sooner is not reported.
	reportEvery = 400 * time.Millisecond
	// reportAgain is the number of intervals after which the same text is reported again, for new listeners.
	reportAgain = 12
)

// waitsFor sets what an attempt waits for now.
func (d *Driver) waitsFor(t *task, text func() string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.doing = text
}

// fixedText returns a function that always returns the same text.
func fixedText(format string, args ...any) func() string {
	text := fmt.Sprintf(format, args...)
	return func() string { return text }
}

// fetching returns the progress of a tree's fetch, for people.
func (d *Driver) fetching(h upload.Hash) string {
	p, _ := d.needs.Fetcher.Fetching(h)
	if p.From == "" {
		return "looking for a node that has its files"
	}
	return fmt.Sprintf("fetching its files: %.1f of %s from %s", mega(p.Done), megabytes(p.Total), p.From)
}

func mega(n int64) float64 { return float64(n) / 1e6 }

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", mega(n)) }

// reportProgress reports what an attempt waits for until stop is called. Nothing is reported after stop has returned.
func (d *Driver) reportProgress(t *task) (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	d.wg.Go(func() {
		defer close(over)
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		last := ""
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			d.mu.Lock()
			doing := t.doing
			d.mu.Unlock()
			if doing == nil {
				continue
			}
			if text := doing(); text != last || n%reportAgain == 0 {
				last = text
				d.needs.Tell(driver.Event{Attempt: t.Attempt, Kind: driver.Starting, Detail: text})
			}
		}
	})
	return func() { close(done); <-over }
}
