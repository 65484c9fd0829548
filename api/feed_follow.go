package api

// Following the feed of another daemon.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	u := url.URL{Scheme: "http", Host: string(peer), Path: pathFeed}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("api: feed of %s: %w", peer.Short(), err)
	}
	setRequester(req.Header, requester{})  // in the name of the daemon, for all its users
	req.Header.Set(headerMeasured, "true") // no parameter: earlier versions refuse those that they do not know
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("api: feed of %s: %w: %w", peer.Short(), ErrUnavailable, followError(ctx, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	from := proven{directory, peer, proofIn(resp.Header)}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxFeedLine)
	for lines.Scan() {
		if err := pace.WaitN(ctx, len(lines.Bytes())+feedLineFee); err != nil {
			return fmt.Errorf("api: feed of %s: %w", peer.Short(), err)
		}
		alive.Reset(feedSilence)
		var l feedLine
		if len(lines.Bytes()) > 0 {
			if l, err = parseFeedLine(lines.Bytes()); err != nil {
				return fmt.Errorf("api: feed of %s: %w", peer.Short(), err)
			}
		}
		if l.Node != nil && !l.Node.isOf(peer) || l.Job != nil && !from.tells(l.Job) {
			d.metrics.dropped(1)
			l = feedLine{}
		}
		if err := each(&l); err != nil {
			return err
		}
	}
	err = lines.Err()
	if err == nil {
		err = errStreamEnded
	}
	if errors.Is(err, bufio.ErrTooLong) {
		err = errFeed
	}
	return fmt.Errorf("api: feed of %s: %w: %w", peer.Short(), ErrUnavailable, followError(ctx, err))
}
