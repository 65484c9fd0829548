package files

// Saying how far the files of a task have come.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/worker"
)

const (
	// sayEvery is the pace at which progress is told; what has come before the
	// first time is not worth a word.
	sayEvery = 400 * time.Millisecond
	// sayAgain is how soon the same is told again, in these steps: whoever asks
	// may be new.
	sayAgain = 12
)

// does notes what an attempt waits for now.
func (d *Driver) does(t *task, text func() string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.doing = text
}

func says(format string, args ...any) func() string {
	text := fmt.Sprintf(format, args...)
	return func() string { return text }
}

// fetching is how far the fetch of a tree has come.
func (d *Driver) fetching(h blob.Hash) string {
	p, _ := d.needs.Fetcher.Fetching(h)
	if p.From == "" {
		return "asking who has its files"
	}
	return fmt.Sprintf("fetching its files: %.1f of %s from %s", mega(p.Done), megabytes(p.Total), p.From)
}

func mega(n int64) float64 { return float64(n) / 1e6 }

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", mega(n)) }

// say tells what an attempt waits for until it is quieted; then nothing more is
// told.
func (d *Driver) say(t *task) (quiet func()) {
	done, over := make(chan struct{}), make(chan struct{})
	d.wg.Go(func() {
		defer close(over)
		tick := time.NewTicker(sayEvery)
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
			if text := doing(); text != last || n%sayAgain == 0 {
				last = text
				d.needs.Tell(worker.DriverEvent{Attempt: t.Attempt, Kind: worker.DriverStarting, Detail: text})
			}
		}
	})
	return func() { close(done); <-over }
}
