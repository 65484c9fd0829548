package blob

// From one daemon's store to another's: the way of a tree to the host that
// runs the task.

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Holder is a daemon that may have trees.
type Holder interface {
	// Tree is the encoding of a tree, or ErrMissing.
	Tree(ctx context.Context, h Hash) ([]byte, error)
	// Chunks asks for one batch of chunks and gives each that the holder has to
	// take, in any order; take must not keep the data, and finds out whether it
	// is what was asked for.
	Chunks(ctx context.Context, refs []Ref, take func(data []byte) error) error
	// String names it for people.
	String() string
}

// fetchers is how many batches travel at once.
const fetchers = 2

// Fetcher brings trees into a store, each once at a time.
type Fetcher struct {
	store *Store

	mu    sync.Mutex
	under map[Hash]*transfer // guarded by mu
}

// transfer is the fetch of one tree.
type transfer struct {
	Fetching // guarded by the fetcher's mu

	over chan struct{} // closed when it has ended
}

// Fetching is how far a fetch has come: bytes of chunks, of those that were
// missing here when a holder was asked. Without From nothing was asked for yet.
type Fetching struct {
	From        string
	Done, Total int64
}

// NewFetcher makes a fetcher for a store.
func NewFetcher(s *Store) *Fetcher { return &Fetcher{store: s, under: map[Hash]*transfer{}} }

// Fetching is how far the fetch of a tree has come, whoever asked for it; false
// if none is under way.
func (f *Fetcher) Fetching(h Hash) (Fetching, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.under[h]
	if t == nil {
		return Fetching{}, false
	}
	return t.Fetching, true
}

// note changes what is told of a fetch that is under way.
func (f *Fetcher) note(h Hash, change func(*Fetching)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.under[h].Fetching)
}

// Fetch makes sure that the store has a tree, and gives how many bytes of
// chunks came for it. What one holder lacks the next is asked for; what has
// come stays, whatever happens. ErrMissing if all holders answered and none
// has it.
func (f *Fetcher) Fetch(ctx context.Context, h Hash, holders []Holder) (Tree, int64, error) {
	done, err := f.enter(ctx, h)
	if err != nil {
		return Tree{}, 0, err
	}
	defer done()
	var came int64
	var errs []error
	t, err := f.have(h)
	if err == nil {
		return t, 0, nil
	}
	for _, from := range holders {
		t, n, err := f.from(ctx, h, from)
		came += n
		if err == nil || ctx.Err() != nil {
			return t, came, err
		}
		errs = append(errs, err)
	}
	// Only if all say so is it nowhere.
	for _, err := range errs {
		if !errors.Is(err, ErrMissing) {
			return Tree{}, came, err
		}
	}
	return Tree{}, came, fmt.Errorf("blob: tree %s: %w: no daemon that was asked has it", h, ErrMissing)
}

// enter waits until nobody else fetches the tree.
func (f *Fetcher) enter(ctx context.Context, h Hash) (done func(), err error) {
	for {
		f.mu.Lock()
		other := f.under[h]
		if other == nil {
			own := &transfer{over: make(chan struct{})}
			f.under[h] = own
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.under, h)
				close(own.over)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-other.over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// have is the tree if all of it is here.
func (f *Fetcher) have(h Hash) (Tree, error) {
	text, err := f.store.TreeText(h)
	if err != nil {
		return Tree{}, err
	}
	t, err := ParseTree(text)
	if err == nil {
		_, err = f.store.keepTree(h, t, text, "")
	}
	return t, err
}

func (f *Fetcher) from(ctx context.Context, h Hash, holder Holder) (Tree, int64, error) {
	text, err := f.store.TreeText(h)
	if err != nil {
		if text, err = holder.Tree(ctx, h); err != nil {
			return Tree{}, 0, err
		}
	}
	if Sum(text) != h {
		return Tree{}, 0, fmt.Errorf("blob: tree %s: %w: what came has another hash", h, ErrInvalid)
	}
	t, err := ParseTree(text)
	if err != nil {
		return t, 0, err
	}
	missing, err := f.store.Missing(t.Chunks())
	if err != nil {
		return t, 0, err
	}
	var total int64
	for _, r := range missing {
		total += int64(r.Size)
	}
	f.note(h, func(p *Fetching) { *p = Fetching{From: holder.String(), Total: total} })
	came, err := f.chunks(ctx, h, missing, holder)
	if err != nil {
		return t, came, err
	}
	_, err = f.store.keepTree(h, t, text, "")
	return t, came, err
}

// chunks fetches batch after batch, a few at a time.
func (f *Fetcher) chunks(ctx context.Context, h Hash, missing []Ref, holder Holder) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan []Ref)
	var running sync.WaitGroup
	var mu sync.Mutex
	var came int64
	for range fetchers {
		running.Go(func() {
			for b := range work {
				n, err := f.batch(ctx, h, b, holder)
				mu.Lock()
				came += n
				mu.Unlock()
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, b := range batches(missing) {
		select {
		case work <- b:
		case <-ctx.Done():
		}
	}
	close(work)
	running.Wait()
	return came, context.Cause(ctx)
}

// batch fetches chunks with one request. What has come stays, also if not all of
// it comes.
func (f *Fetcher) batch(ctx context.Context, h Hash, refs []Ref, holder Holder) (int64, error) {
	var came int64
	to := f.store.Putter(false)
	to.only = make(map[Hash]bool, len(refs))
	for _, r := range refs {
		to.only[r.Hash] = true
	}
	defer to.Discard()
	err := holder.Chunks(ctx, refs, func(data []byte) error {
		r, err := to.Put(data)
		if err == nil {
			came += int64(r.Size)
			f.note(h, func(p *Fetching) { p.Done += int64(r.Size) })
		}
		return err
	})
	return came, errors.Join(err, to.Close())
}
