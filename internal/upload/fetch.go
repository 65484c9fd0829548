package upload

// Fetching: copying a tree from another daemon's store to the host that runs the task.

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Holder is a daemon that may have a tree.
type Holder interface {
	// Tree returns the encoding of a tree, or ErrMissing.
	Tree(ctx context.Context, h Hash) ([]byte, error)
	// Chunks requests one batch of chunks and passes each chunk that the holder has to take, in any order. Take must
	// not keep the data, and checks that the chunk was requested.
	Chunks(ctx context.Context, refs []Ref, take func(data []byte) error) error
	// String names the holder for people.
	String() string
}

// fetchers is how many batches are requested at the same time.
const fetchers = 2

// Fetcher copies trees into a store. Of each tree only one fetch runs at a time.
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

// Fetching is the progress of a fetch, in bytes of the chunks that were missing when the holder From was asked. From
// is empty while no holder was asked.
type Fetching struct {
	From        string
	Done, Total int64
}

// NewFetcher returns a fetcher for a store.
func NewFetcher(s *Store) *Fetcher { return &Fetcher{store: s, under: map[Hash]*transfer{}} }

// Fetching returns the progress of a tree's fetch, or false if none is in progress.
func (f *Fetcher) Fetching(h Hash) (Fetching, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.under[h]
	if t == nil {
		return Fetching{}, false
	}
	return t.Fetching, true
}

// note changes the progress of a fetch.
func (f *Fetcher) note(h Hash, change func(*Fetching)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.under[h].Fetching)
}

// Fetch makes sure that the store has a tree, and returns how many bytes of chunks were copied. Chunks that one
// holder lacks are requested from the next. Chunks that have arrived stay in the store, even after an error. The
// error is ErrMissing if all holders answered and none has the tree.
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
	// ErrMissing only if every holder says so.
	for _, err := range errs {
		if !errors.Is(err, ErrMissing) {
			return Tree{}, came, err
		}
	}
	return Tree{}, came, fmt.Errorf("blob: tree %s: %w: no daemon that was asked has it", h, ErrMissing)
}

// enter waits until no other fetch of the tree is in progress, and begins one.
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

// have returns the tree if all of it is in the store.
func (f *Fetcher) have(h Hash) (Tree, error) {
	text, err := f.store.TreeText(h)
	if err != nil {
		return Tree{}, err
	}
	t, err := ParseTree(text)
	if err == nil {
		_, err = f.store.storeTree(h, t, text, "")
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
		return Tree{}, 0, fmt.Errorf("blob: tree %s: %w: the received data has another hash", h, ErrInvalid)
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
	_, err = f.store.storeTree(h, t, text, "")
	return t, came, err
}

// chunks fetches missing chunks in batches, fetchers of them at the same time.
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

// batch fetches chunks with one request. Chunks that have arrived stay in the store, even after an error.
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
