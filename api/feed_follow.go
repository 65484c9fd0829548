package api

// Following the feed of another daemon.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/job"
)

// Bounds of reading a feed.
const (
	feedSilence = 10 * time.Second // may pass without a line before the feed is ended
	feedBurst   = 32 << 20         // bytes that are read at once: all jobs that a busy daemon tells
	feedRate    = 2 << 20          // bytes a second beyond that: the changes of some thousand jobs
	feedLineFee = 64               // bytes that each line costs beside its own
)

// newFeedPace returns the pace at which the feeds of one member are read. One that floods waits for its reader, as an honest
// one does, which skips versions meanwhile.
func newFeedPace() *rate.Limiter { return rate.NewLimiter(feedRate, feedBurst) }

// feedOf calls each with the lines of another daemon's feed, until the feed breaks or each returns an error. A line that
// is about what is not that daemon's own is dropped. ErrNotFound means that the daemon has no feeds, as in earlier versions.
func (d *daemons) feedOf(ctx context.Context, directory Directory, peer job.Peer, pace *rate.Limiter, each func(*feedLine) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(feedSilence, func() { cancel(errNoAnswer) })
	defer alive.Stop()
	var resp *http.Response
	err := apart(func() (err error) {
		resp, err = d.openFeed(ctx, peer) //nolint:bodyclose // below
		return err
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	from := proven{directory, peer, proofsIn(resp.Header)}
	for lines := newLineReader(resp.Body, maxFeedLine); ; {
		line, err := lines.next()
		if err == nil {
			err = pace.WaitN(ctx, len(line)+feedLineFee)
		}
		if err != nil {
			return fmt.Errorf("api: feed of %s: %w: %w", peer.Short(), ErrUnavailable, followError(ctx, feedError(err)))
		}
		alive.Reset(feedSilence)
		if err := apart(func() error { return d.feedLine(&from, line, each) }); err != nil {
			return err
		}
	}
}

// apart runs f on a goroutine of its own, which takes its stack away when it ends. Requests and JSON make a stack of 8 KB or
// more, which would stay so for as long as a feed is followed, and there are hundreds of feeds.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return <-done
}

// openFeed asks for the feed of another daemon.
func (d *daemons) openFeed(ctx context.Context, peer job.Peer) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: string(peer), Path: pathFeed}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("api: feed of %s: %w", peer.Short(), err)
	}
	setRequester(req.Header, requester{})  // in the name of the daemon, for all its users
	req.Header.Set(headerMeasured, "true") // no parameter: earlier versions refuse those that they do not know
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("api: feed of %s: %w: %w", peer.Short(), ErrUnavailable, followError(ctx, err))
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	return resp, nil
}

// feedLine calls each with a line. An empty one is a sign of life.
func (d *daemons) feedLine(from *proven, text []byte, each func(*feedLine) error) error {
	var l feedLine
	if len(text) > 0 {
		var err error
		if l, err = parseFeedLine(text); err != nil {
			return fmt.Errorf("api: feed of %s: %w", from.peer.Short(), err)
		}
	}
	if l.Node != nil && !l.Node.isOf(from.peer) || l.Job != nil && !from.tells(l.Job) {
		d.metrics.dropped(1)
		l = feedLine{}
	}
	return each(&l)
}

// feedError returns why a feed ends after an error of reading it.
func feedError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errStreamEnded
	case errors.Is(err, bufio.ErrTooLong):
		return errFeed
	}
	return err
}
