package upload

// Uploading: sending a client's files to the daemon's store, without the chunks that are there already.

import (
	"context"
	"errors"
	"sync"
)

// Target is the store that an upload is sent to.
type Target interface {
	// MissingChunks returns those of at most MaxAsk refs that it does not have.
	MissingChunks(ctx context.Context, refs []Ref) ([]Ref, error)
	// PutChunks stores chunks, each preceded by its length. The body has at most MaxBatch bytes, or a single chunk.
	PutChunks(ctx context.Context, body []byte) error
	// PutTree stores a tree whose chunks it has. If it lacks some, the error is ErrMissing. When it returns, the
	// whole tree is on disk.
	PutTree(ctx context.Context, h Hash, text []byte) error
}

// Progress is the progress of an upload.
type Progress struct {
	Done, Total int64 // bytes that were read, and of all files
	Sent        int64 // bytes of chunks that were sent
}

const (
	// senders is how many batches are sent at the same time: while the store writes one, the next one is transferred.
	senders = 3
	// sendAgain is how many times an upload is tried if chunks are removed from the store meanwhile.
	sendAgain = 3
)

// Send uploads the sources that Scan has listed and returns the tree's hash. It sets the sources' chunks. It calls
// see, if not nil, with the progress.
func Send(ctx context.Context, target Target, sources []Source, see func(Progress)) (Hash, Progress, error) {
	var p Progress
	for _, s := range sources {
		p.Total += s.Size
	}
	if see == nil {
		see = func(Progress) {}
	}
	for try := 1; ; try++ {
		u := upload{target: target, see: see, p: Progress{Total: p.Total, Sent: p.Sent}, seen: map[Hash]bool{}, sent: make(chan []byte, senders)}
		h, err := u.all(ctx, sources)
		p = u.p
		if !errors.Is(err, ErrMissing) || try == sendAgain {
			return h, p, err
		}
	}
}

type upload struct {
	target Target
	see    func(Progress)
	seen   map[Hash]bool
	batch  batch
	sent   chan []byte // bodies that can be reused

	mu sync.Mutex
	p  Progress // guarded by mu
}

// batch holds chunks that are ready to be sent, in their wire format.
type batch struct {
	refs []Ref
	body []byte
}

func (u *upload) all(ctx context.Context, sources []Source) (Hash, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan batch)
	var running sync.WaitGroup
	for range senders {
		running.Go(func() {
			for b := range work {
				if err := u.send(ctx, b); err != nil {
					cancel(err)
				}
			}
		})
	}
	err := u.split(ctx, sources, work)
	close(work)
	running.Wait()
	if broken := context.Cause(ctx); broken != nil {
		return Hash{}, broken
	}
	if err != nil {
		return Hash{}, err
	}
	t := Tree{Entries: make([]Entry, len(sources))}
	for i, s := range sources {
		t.Entries[i] = s.Entry
	}
	text, h, err := t.Encode()
	if err != nil {
		return h, err
	}
	return h, u.target.PutTree(ctx, h, text)
}

// split splits the files into chunks and sends batches of them to work.
func (u *upload) split(ctx context.Context, sources []Source, work chan<- batch) error {
	chunker, err := NewChunker()
	if err != nil {
		return err
	}
	for i := range sources {
		if sources[i].Kind != File {
			continue
		}
		take := func(r Ref, data []byte) error { return u.take(ctx, r, data, work) }
		if err := chunker.SplitFile(&sources[i], take); err != nil {
			return err
		}
	}
	return u.flush(ctx, work)
}

// take adds a chunk to the batch, unless the upload has the chunk already.
func (u *upload) take(ctx context.Context, r Ref, data []byte, work chan<- batch) error {
	u.tell(int64(r.Size), 0)
	if u.seen[r.Hash] {
		return nil
	}
	u.seen[r.Hash] = true
	if len(u.batch.body)+headBytes+len(data) > MaxBatch || len(u.batch.refs) == MaxAsk {
		if err := u.flush(ctx, work); err != nil {
			return err
		}
	}
	if u.batch.body == nil {
		u.batch.body = u.fresh()
	}
	u.batch.refs = append(u.batch.refs, r)
	u.batch.body = append(AppendHead(u.batch.body, r.Size), data...)
	return nil
}

// fresh returns an empty body; if possible it reuses one that was sent.
func (u *upload) fresh() []byte {
	select {
	case body := <-u.sent:
		return body[:0]
	default:
		return make([]byte, 0, MaxBatch)
	}
}

func (u *upload) flush(ctx context.Context, work chan<- batch) error {
	if len(u.batch.refs) == 0 {
		return nil
	}
	select {
	case work <- u.batch:
		u.batch = batch{}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (u *upload) tell(done, sent int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.p.Done += done
	u.p.Sent += sent
	u.see(u.p)
}

// send sends the chunks of a batch that the target lacks.
func (u *upload) send(ctx context.Context, b batch) error {
	missing, err := u.target.MissingChunks(ctx, b.refs)
	if err != nil {
		return err
	}
	body := b.only(missing)
	if len(body) > 0 {
		if err := u.target.PutChunks(ctx, body); err != nil {
			return err
		}
		sent := int64(0)
		for _, r := range missing {
			sent += int64(r.Size)
		}
		u.tell(0, sent)
	}
	select {
	case u.sent <- b.body:
	default:
	}
	return nil
}

// only returns the batch's body with only the chunks refs. It overwrites the body.
func (b batch) only(refs []Ref) []byte {
	wanted := make(map[Hash]bool, len(refs))
	for _, r := range refs {
		wanted[r.Hash] = true
	}
	at, end := 0, 0
	for _, r := range b.refs {
		n := headBytes + int(r.Size)
		if wanted[r.Hash] {
			end += copy(b.body[end:], b.body[at:at+n])
		}
		at += n
	}
	return b.body[:end]
}
