package execdriver

// What tasks write, for those who read it while it grows.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner"
)

// maxFollowers bounds the outputs that are followed at once: each costs the
// host an inotify watch, of which a user has some thousands.
const maxFollowers = 4096

// ErrTooManyFollowers says that no more outputs can be followed now; read
// without following, or try again later.
var ErrTooManyFollowers = errors.New("exec driver: too many outputs are followed")

// Path is the file that an attempt writes one of its outputs to.
func (d *Driver) Path(a job.Attempt, stream runner.Stream) string { return d.dir.Output(a, stream) }

// Follow reads an output from an offset to its end. With follow the end is
// where the attempt has ended and all that it wrote was read; without, where
// the file ends now. An attempt that has no output gives os.ErrNotExist. Reads
// end with ErrClosed when ctx does.
func (d *Driver) Follow(ctx context.Context, a job.Attempt, stream runner.Stream, offset int64, follow bool) (io.ReadCloser, error) {
	if stream != runner.Stdout && stream != runner.Stderr {
		return nil, fmt.Errorf("exec driver: follow %s: no stream %.20q", a, stream)
	}
	if offset < 0 {
		return nil, fmt.Errorf("exec driver: follow %s: offset %d", a, offset)
	}
	r := &reader{done: make(chan struct{}), offset: offset}
	life := d.lives.of(a)
	if follow && life != nil {
		r.ended = life.ended
		select {
		case <-life.begun:
		case <-ctx.Done():
			return nil, fmt.Errorf("exec driver: follow %s: %w", a, ctx.Err())
		}
	}
	path := d.Path(a, stream)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("exec driver: follow %s: %w", a, err)
	}
	r.f = f
	if r.ended != nil {
		if r.grown, r.leave, err = d.tails.join(path); err != nil {
			return nil, errors.Join(fmt.Errorf("exec driver: follow %s: %w", a, err), f.Close())
		}
	}
	r.stop = context.AfterFunc(ctx, r.finish)
	return r, nil
}

// reader reads one file as it grows.
type reader struct {
	f      *os.File
	offset int64
	ended  <-chan struct{} // nil: do not wait for growth
	grown  <-chan struct{}
	leave  func()
	stop   func() bool
	done   chan struct{}
	once   sync.Once
}

// Read waits for at least one byte.
func (r *reader) Read(p []byte) (int, error) {
	for {
		last := r.ended == nil
		select {
		case <-r.done:
			return 0, ErrClosed
		case <-r.ended:
			last = true // what is there now is all
		default:
		}
		n, err := r.f.ReadAt(p, r.offset)
		r.offset += int64(n)
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		if !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("exec driver: read output: %w", err)
		}
		if last {
			return 0, io.EOF
		}
		select {
		case <-r.done:
		case <-r.ended:
		case <-r.grown:
		}
	}
}

// Close ends reads that wait.
func (r *reader) Close() error {
	r.stop()
	r.finish()
	return r.f.Close()
}

func (r *reader) finish() {
	r.once.Do(func() {
		close(r.done)
		if r.leave != nil {
			r.leave()
		}
	})
}

// tails tells readers that files have grown. One inotify instance serves all:
// a user has few of them.
type tails struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher                 // guarded by mu; nil before Run and after
	subs    map[string]map[chan struct{}]bool // guarded by mu
	count   int                               // guarded by mu
}

func (t *tails) open() error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("exec driver: watch files: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watcher = w
	return nil
}

// run passes on that files have grown until the watcher is closed.
func (t *tails) run() {
	t.mu.Lock()
	w := t.watcher
	t.mu.Unlock()
	if w == nil {
		return
	}
	for {
		select {
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			if e.Has(fsnotify.Write) {
				t.grown(e.Name)
			}
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			t.grown("") // the queue ran over: anyone may have missed something
		}
	}
}

// grown wakes the readers of a path, or all for none.
func (t *tails) grown(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	which := t.subs
	if path != "" {
		which = map[string]map[chan struct{}]bool{path: t.subs[path]}
	}
	for _, subs := range which {
		for c := range subs {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

// join tells of each growth of a path from now on, until leave is called.
func (t *tails) join(path string) (grown <-chan struct{}, leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watcher == nil {
		return nil, nil, ErrClosed
	}
	if t.count >= maxFollowers {
		return nil, nil, ErrTooManyFollowers
	}
	if len(t.subs[path]) == 0 {
		if err := t.watcher.Add(path); err != nil {
			return nil, nil, fmt.Errorf("exec driver: watch %s: %w", path, err)
		}
		t.subs[path] = map[chan struct{}]bool{}
	}
	c := make(chan struct{}, 1)
	t.subs[path][c] = true
	t.count++
	return c, func() { t.part(path, c) }, nil
}

func (t *tails) part(path string, c chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subs[path], c)
	t.count--
	if len(t.subs[path]) == 0 {
		delete(t.subs, path)
		if t.watcher != nil {
			_ = t.watcher.Remove(path) // gone with the file
		}
	}
}

func (t *tails) close() {
	t.mu.Lock()
	w := t.watcher
	t.watcher = nil
	t.mu.Unlock()
	if w != nil {
		_ = w.Close() // ends run
	}
}
