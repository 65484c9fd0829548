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
	feedSilence = 10 * time.Second // after this time without a line the feed is given up
	feedBurst   = 32 << 20         // bytes that are read without a pause: all jobs of a busy daemon
	feedRate    = 2 << 20          // bytes per second after that: the changes of some thousand jobs
	feedLineFee = 64               // bytes that each line counts in addition to its length
)

// newFeedPace returns the rate limit for reading the feeds of one member. A member that sends too much has to wait for its
// reader. An honest member then skips outdated versions of objects.
func newFeedPace() *rate.Limiter { return rate.NewLimiter(feedRate, feedBurst) }

// feedOf calls each with the lines of another daemon's feed, until the feed breaks or each returns an error. Lines about
// nodes or jobs that are not that daemon's own are replaced by empty ones. ErrNotFound means that the daemon has no feed,
// as in earlier versions.
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

// apart runs f on a goroutine of its own, whose stack is freed when f returns. Requests and JSON grow a stack to 8 KB or
// more. Otherwise each of the goroutines that follow hundreds of feeds would keep such a stack.
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
	req.Header.Set(headerMeasured, "true") // a header, because earlier versions refuse unknown query parameters
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

// feedLine parses and checks a line and calls each with it. An empty line is a sign of life.
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

// feedError turns an error of reading a feed into the reason for its end.
func feedError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errStreamEnded
	case errors.Is(err, bufio.ErrTooLong):
		return errFeed
	}
	return err
}

// lineBuffer is the size of the buffer in bytes. Most lines of a feed fit in it.
const lineBuffer = 2 << 10

// lineReader reads lines. A line that is longer than the buffer gets memory of its own, which is not kept afterwards.
type lineReader struct {
	r    *bufio.Reader
	most int // bytes of a line
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, lineBuffer), most}
}

// next returns a line without its newline. The line is valid until the next call. next returns bufio.ErrTooLong for a line
// beyond the bound, and io.EOF at the end or if the last line was cut off.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull { //nolint:errorlint // bufio returns it as it is
		line, err = l.long(line)
	}
	if err != nil {
		return nil, err
	}
	return line[:len(line)-1], nil
}

// long reads the rest of a line that does not fit in the buffer.
func (l *lineReader) long(begun []byte) ([]byte, error) {
	line := append(make([]byte, 0, 4*lineBuffer), begun...)
	for {
		more, err := l.r.ReadSlice('\n')
		if len(line)+len(more) > l.most {
			return nil, bufio.ErrTooLong
		}
		line = append(line, more...)
		if err != bufio.ErrBufferFull { //nolint:errorlint // bufio returns it as it is
			return line, err
		}
	}
}
