package output

// Waiting for more of a log.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// maxFollowers bounds the logs that are followed at once: each costs the host
// an inotify watch, of which a user has some thousands.
const maxFollowers = 4096

// ErrTooManyFollowers says that no more logs can be followed now; read without
// following, or try again later.
var ErrTooManyFollowers = errors.New("output: too many logs are followed")

// ErrClosed says that a log is not followed any more: its reader was closed,
// or its context has ended.
var ErrClosed = errors.New("output: no longer followed")

// Follows tells readers that logs have grown. One inotify instance serves all:
// a user has few of them. The zero value follows nothing before Run.
type Follows struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher                 // guarded by mu; nil before Run and after
	subs    map[string]map[chan struct{}]bool // guarded by mu; by directory
	count   int                               // guarded by mu
}

// Open makes Follow work; close it with Close.
func (t *Follows) Open() error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("output: watch files: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watcher, t.subs = w, map[string]map[chan struct{}]bool{}
	return nil
}

// Run passes on that logs have grown until Close.
func (t *Follows) Run() {
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
			if e.Has(fsnotify.Write) || e.Has(fsnotify.Create) {
				t.grown(filepath.Dir(e.Name))
			}
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			t.grown("") // the queue ran over: anyone may have missed something
		}
	}
}

// Close ends Run, and with it every wait of a follower for growth; those of
// logs that have ended read on.
func (t *Follows) Close() {
	t.mu.Lock()
	w := t.watcher
	t.watcher = nil
	t.mu.Unlock()
	if w != nil {
		_ = w.Close() // ends Run
	}
}

// grown wakes the followers of a directory, or all for none.
func (t *Follows) grown(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	which := t.subs
	if dir != "" {
		which = map[string]map[chan struct{}]bool{dir: t.subs[dir]}
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

// join tells of each growth in a directory from now on, until part.
func (t *Follows) join(dir string) (chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watcher == nil {
		return nil, ErrClosed
	}
	if t.count >= maxFollowers {
		return nil, ErrTooManyFollowers
	}
	if len(t.subs[dir]) == 0 {
		if err := t.watcher.Add(dir); err != nil {
			return nil, fmt.Errorf("output: watch %s: %w", dir, err)
		}
		t.subs[dir] = map[chan struct{}]bool{}
	}
	c := make(chan struct{}, 1)
	t.subs[dir][c] = true
	t.count++
	return c, nil
}

func (t *Follows) part(dir string, c chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subs[dir], c)
	t.count--
	if len(t.subs[dir]) == 0 {
		delete(t.subs, dir)
		if t.watcher != nil {
			_ = t.watcher.Remove(dir) // gone with the directory
		}
	}
}

// Follow reads a log as Open does, and waits at its end for more until ended is
// closed; then it reads what is left and gives io.EOF. Without ended it gives
// that at what is there now. Reads end with ErrClosed when ctx does.
func (t *Follows) Follow(ctx context.Context, dir string, s Stream, offset int64, ended <-chan struct{}) (*Follower, error) {
	f := &Follower{ended: ended, done: make(chan struct{})}
	if ended != nil {
		grown, err := t.join(dir)
		if err != nil {
			return nil, err
		}
		f.grown, f.leave = grown, func() { t.part(dir, grown) }
	}
	r, err := Open(dir, s, offset)
	if err != nil {
		f.finish()
		return nil, err
	}
	f.r = r
	f.stop = context.AfterFunc(ctx, f.finish)
	return f, nil
}

// Follower reads one log as it grows.
type Follower struct {
	r     *Reader
	ended <-chan struct{} // nil: do not wait for growth
	grown <-chan struct{}
	leave func()
	stop  func() bool
	done  chan struct{}
	once  sync.Once
}

// Offset is that of the next byte, within the stream.
func (f *Follower) Offset() int64 { return f.r.Offset() }

// Read waits for at least one byte. A *CutError is as in Reader.Read.
func (f *Follower) Read(p []byte) (int, error) {
	for {
		last := f.ended == nil
		select {
		case <-f.done:
			return 0, ErrClosed
		case <-f.ended:
			last = true // what is there now is all
		default:
		}
		n, err := f.r.Read(p)
		if !errors.Is(err, io.EOF) || last {
			return n, err
		}
		select {
		case <-f.done:
		case <-f.ended:
		case <-f.grown:
		}
	}
}

// Close ends reads that wait. It is called after the last Read, or at once.
func (f *Follower) Close() error {
	f.stop()
	f.finish()
	f.r.Close()
	return nil
}

func (f *Follower) finish() {
	f.once.Do(func() {
		close(f.done)
		if f.leave != nil {
			f.leave()
		}
	})
}
