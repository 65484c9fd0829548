package output

// Following a log: waiting until it grows.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// maxFollowers bounds the logs that are followed at a time. Each needs an inotify watch, and a user has some
// thousands of them.
const maxFollowers = 4096

// ErrTooManyFollowers says that no more logs can be followed now. Read without following, or try again later.
var ErrTooManyFollowers = errors.New("output: too many logs are followed")

// ErrClosed says that a follower was closed, or that its context has ended.
var ErrClosed = errors.New("output: no longer followed")

// Follows wakes readers when logs have grown. One inotify instance serves all, because a user has few of them. Follow
// fails before Open.
type Follows struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher                 // guarded by mu; nil before Open and after Close
	subs    map[string]map[chan struct{}]bool // guarded by mu; by directory
	count   int                               // guarded by mu
}

// Open makes Follow work until Close.
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

// Run wakes followers when their logs have grown. It returns after Close.
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
			t.grown("") // the queue overflowed: any follower may have missed an event
		}
	}
}

// Close ends Run and every follower that waits for a log to grow. Followers of logs that have ended can still read.
func (t *Follows) Close() {
	t.mu.Lock()
	w := t.watcher
	t.watcher = nil
	t.mu.Unlock()
	if w != nil {
		_ = w.Close() // ends Run
	}
}

// grown wakes the followers of a directory, or all if dir is "".
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

// Followed reports whether anybody waits for the log in dir to grow.
func (t *Follows) Followed(dir string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.subs[dir]) > 0
}

// join returns a channel that receives when a log in dir has grown, until part. It returns nil if ended is closed, so
// that a directory which was not Followed after the end of its log never is.
func (t *Follows) join(dir string, ended <-chan struct{}) (chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watcher == nil {
		return nil, ErrClosed
	}
	select {
	case <-ended:
		return nil, nil
	default:
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
			_ = t.watcher.Remove(dir) // fails if the directory was removed
		}
	}
}

// Follow reads a log as Open does. At the log's end it waits for more until ended is closed; then it reads the rest
// and returns io.EOF. If ended is nil, it returns io.EOF at the present end. Reads return ErrClosed after ctx has
// ended.
func (t *Follows) Follow(ctx context.Context, dir string, s Stream, offset int64, ended <-chan struct{}) (*Follower, error) {
	f := &Follower{ended: ended, done: make(chan struct{})}
	if ended != nil {
		grown, err := t.join(dir, ended)
		if err != nil {
			return nil, err
		}
		if grown != nil {
			f.grown, f.leave = grown, func() { t.part(dir, grown) }
		}
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

// FollowNothing returns a follower of a log that ended without a byte. Its directory is gone.
func FollowNothing(offset int64) *Follower {
	return &Follower{r: &Reader{off: max(0, offset), nothing: true}, done: make(chan struct{}), stop: func() bool { return true }}
}

// Follower reads one log while it grows.
type Follower struct {
	r     *Reader
	ended <-chan struct{} // nil: do not wait for growth
	grown <-chan struct{}
	leave func()
	stop  func() bool
	done  chan struct{}
	once  sync.Once
}

// Offset returns the offset of the next byte in the stream.
func (f *Follower) Offset() int64 { return f.r.Offset() }

// Read waits for at least one byte. It returns a *CutError as Reader.Read does.
func (f *Follower) Read(p []byte) (int, error) {
	for {
		last := f.ended == nil
		select {
		case <-f.done:
			return 0, ErrClosed
		case <-f.ended:
			last = true // nothing more will be written
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

// Close ends a Read that waits. It is called after the last Read, or at any time.
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
