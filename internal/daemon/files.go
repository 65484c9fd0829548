package daemon

// The files of jobs: which uploads are in use, which daemons have them, and access to the files of tasks.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/worker/files"
	"github.com/musterhq/muster/worker/loop"
)

var (
	_ api.Uploads = (*upload.Store)(nil)
	_ api.Files   = filesBackend{}
)

// liveWait bounds how long the worker and the scheduler may take to name the trees in use.
const liveWait = 5 * time.Second

// maxHolders bounds the daemons besides the owner that are asked for a job's files.
const maxHolders = 8

// liveTrees returns the uploaded trees that jobs or tasks of this daemon still need.
func liveTrees(work *loop.Loop, from jobsBackend) (map[upload.Hash]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), liveWait) //nolint:forbidigo // the store calls it without a context
	defer cancel()
	live := map[upload.Hash]bool{}
	note := func(s job.Spec) {
		if h, err := upload.ParseHash(s.Tree); err == nil {
			live[h] = true
		}
	}
	records, err := work.Attempts(ctx)
	if err != nil {
		return nil, fmt.Errorf("files in use: %w", err)
	}
	for _, r := range records {
		note(r.File.Spec())
	}
	var states []job.State
	for _, s := range job.States() {
		if !s.Ended() {
			states = append(states, s)
		}
	}
	jobs, err := from.List(ctx, job.Query{States: states})
	if err != nil {
		return nil, fmt.Errorf("files in use: %w", err)
	}
	for _, j := range jobs {
		note(j.Spec)
	}
	return live, nil
}

// holders finds the daemons that may have a job's files.
type holders struct {
	host      *p2p.Host
	groups    *directory
	transport http.RoundTripper
}

// of returns the daemons that may have a job's files: its owner, then connected members. This daemon does not know
// which members ran tasks of the job.
func (h holders) of(ctx context.Context, id job.ID) []upload.Holder {
	client := &http.Client{Transport: h.transport}
	var all []upload.Holder
	owner, self, err := h.groups.Owner(ctx, id.Group())
	switch {
	case err != nil:
		all = append(all, noHolder{err})
	case !self:
		m, _ := h.host.Member(owner)
		all = append(all, api.Holder{HTTP: client, Peer: owner, Name: m.Name})
	}
	for _, m := range h.host.Members() {
		if m.Connected && m.Peer != owner && len(all) <= maxHolders {
			all = append(all, api.Holder{HTTP: client, Peer: m.Peer, Name: m.Name})
		}
	}
	return all
}

// noHolder stands for an owner that cannot be found now.
type noHolder struct{ err error }

// String returns a name for errors; see upload.Holder.
func (noHolder) String() string { return "its owner" }

// Tree returns the error; see upload.Holder.
func (h noHolder) Tree(context.Context, upload.Hash) ([]byte, error) { return nil, h.err }

// Chunks returns the error; see upload.Holder.
func (h noHolder) Chunks(context.Context, []upload.Ref, func([]byte) error) error { return h.err }

// filesBackend gives the API access to the files of this host's tasks.
type filesBackend struct {
	files *files.Driver
	work  *loop.Loop
}

// Pack writes the files of an attempt.
func (b filesBackend) Pack(ctx context.Context, a job.Attempt, globs []string, base bool, w io.Writer) error {
	p, err := b.place(ctx, a)
	if err == nil {
		err = p.Pack(ctx, globs, base, w)
	}
	if errors.Is(err, files.ErrNone) {
		err = fmt.Errorf("%w: %w", api.ErrNotFound, err)
		if p.Problem != "" {
			err = fmt.Errorf("%w; when it ended: %s", err, p.Problem)
		}
	}
	if errors.Is(err, files.ErrTooMany) {
		err = fmt.Errorf("%w: %w", api.ErrTooLarge, err)
	}
	return err
}

// place returns where the files of an attempt are.
func (b filesBackend) place(ctx context.Context, a job.Attempt) (files.Place, error) {
	records, err := b.work.Attempts(ctx)
	if err != nil {
		return files.Place{}, apiErrorOf(err)
	}
	for _, r := range records {
		if r.Attempt == a && r.Phase == contract.PhaseStarted && r.Exit == nil {
			return b.files.Living(a, r.User, r.File.Spec())
		}
	}
	return b.files.Ended(a)
}
