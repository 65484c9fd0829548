package api

// The output of attempts, in memory and growing.

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/musterhq/muster/job"
)

// testLog is the growing output of one attempt.
type testLog struct {
	mu    sync.Mutex
	text  []byte        // guarded by mu
	done  bool          // guarded by mu
	start int64         // guarded by mu: offset before which everything was removed
	gap   [2]int64      // guarded by mu: the bytes between these offsets were removed
	grown chan struct{} // guarded by mu; closed at each change
}

func (l *testLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *testLog) write(text string) { l.change(func() { l.text = append(l.text, text...) }) }
func (l *testLog) end()              { l.change(func() { l.done = true }) }

// log returns the log of an attempt, which it creates at its first use.
func (d *daemon) log(a job.Attempt, stream string) *testLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := a.String() + "/" + stream
	if d.logs[key] == nil {
		d.logs[key] = &testLog{grown: make(chan struct{})}
	}
	return d.logs[key]
}

func (d *daemon) Open(ctx context.Context, a job.Attempt, stream string, offset int64, follow bool) (io.ReadCloser, int64, error) {
	d.mu.Lock()
	if stream == "both" {
		stream = "stdout" // the tasks of these tests write to one stream
	}
	l := d.logs[a.String()+"/"+stream]
	d.mu.Unlock()
	if l == nil {
		return nil, 0, fmt.Errorf("attempt %s on %s: %w", a, d.name, ErrNotFound)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset < 0 {
		offset = max(0, int64(len(l.text))+offset)
	}
	if offset = max(offset, l.start); l.gap[0] < offset && offset < l.gap[1] {
		offset = l.gap[1]
	}
	return &testLogReader{ctx.Done(), l, offset, follow}, offset, nil
}

type testLogReader struct {
	ended  <-chan struct{}
	l      *testLog
	at     int64
	follow bool
}

func (r *testLogReader) Read(b []byte) (int, error) {
	for {
		r.l.mu.Lock()
		if gap := r.l.gap; r.at == gap[0] && gap[1] > 0 {
			r.at = gap[1]
			r.l.mu.Unlock()
			return 0, &GapError{Next: r.at}
		}
		if r.at < int64(len(r.l.text)) {
			upTo := len(r.l.text)
			if r.at < r.l.gap[0] {
				upTo = int(r.l.gap[0])
			}
			n := copy(b, r.l.text[r.at:upTo])
			r.at += int64(n)
			r.l.mu.Unlock()
			return n, nil
		}
		done, grown := r.l.done || !r.follow, r.l.grown
		r.l.mu.Unlock()
		if done {
			return 0, io.EOF
		}
		select {
		case <-grown:
		case <-r.ended:
			return 0, context.Canceled
		}
	}
}

func (r *testLogReader) Close() error { return nil }
