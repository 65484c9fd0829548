package docker

// Pulling an image, and reporting the progress.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// pullTries bounds the attempts to pull an image after an error that may be temporary, such as a broken
	// connection.
	pullTries = 4
	pullFirst = time.Second // doubles
	// tellEvery is how often progress is reported.
	tellEvery = time.Second
	// stalledAfter ends a pull in which nothing has moved: no byte of a download, no layer. A registry that is slow moves
	// some bytes in that time, and an engine that unpacks a large layer says so.
	stalledAfter = 5 * time.Minute
	// queuedAfter ends a pull whose layers all wait: an engine downloads a few layers at a time, and others come first.
	queuedAfter = time.Hour
)

// image returns the image. It pulls the image if the engine does not have it.
func (l *link) image(ctx context.Context, b spawn.Container) (client.ImageInspectResult, error) {
	img, err := l.ImageInspect(ctx, b.Image)
	if err == nil || !errdefs.IsNotFound(err) {
		return img, err
	}
	b.Progress("pulling " + b.Image)
	wait := pullFirst
	for try := 1; ; try++ {
		if err = l.pull(ctx, b); err == nil {
			return l.ImageInspect(ctx, b.Image)
		}
		if ctx.Err() != nil {
			return img, ctx.Err()
		}
		if client.IsErrConnectionFailed(err) {
			return img, err
		}
		if try == pullTries || !mayPass(err) {
			return img, notPulled(b.Image, err)
		}
		b.Progress(fmt.Sprintf("pulling %s failed, attempt %d of %d: %s", b.Image, try, pullTries, inOneLine(err)))
		if !pause(ctx, wait) {
			return img, ctx.Err()
		}
		wait *= 2
	}
}

func inOneLine(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "Error response from daemon: ")), " ")
}

// pull pulls an image. It ends a pull that stalls.
func (l *link) pull(ctx context.Context, b spawn.Container) error {
	p := progress{image: b.Image, layers: map[string]*layer{}, moved: time.Now()}
	told := make(chan struct{})
	defer func() { <-told }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		defer close(told)
		if err := p.tell(ctx, b.Progress); err != nil {
			stop(err)
		}
	}()
	err := l.follow(ctx, &p)
	if stalled, ok := errors.AsType[*stalledError](context.Cause(ctx)); ok {
		return stalled
	}
	return err
}

// follow makes the engine pull the image, and reads its messages to their end.
func (l *link) follow(ctx context.Context, p *progress) error {
	body, err := l.ImagePull(ctx, p.image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	for m, err := range body.JSONMessages(ctx) {
		switch {
		case err != nil:
			return err
		case m.Error != nil:
			return errors.New(m.Error.Message)
		}
		p.take(m)
	}
	return ctx.Err()
}

// progress sums up the download of all layers.
type progress struct {
	image  string
	mu     sync.Mutex
	layers map[string]*layer // guarded by mu
	moved  time.Time         // guarded by mu; when the last message came that told something new
}

// tell calls to with each change of the progress until ctx ends. It uses a timer, because the engine is silent while
// the registry does not answer. It returns an error if the pull stalls.
func (p *progress) tell(ctx context.Context, to func(string)) error {
	last := ""
	for pause(ctx, tellEvery) {
		if text := p.String(); text != last {
			last = text
			to(text)
		}
		if err := p.stalled(time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// stalledError says that a pull made no progress for some time.
type stalledError struct {
	after  time.Duration
	queued bool
}

// Error returns what did not move, for people.
func (e *stalledError) Error() string {
	text := fmt.Sprintf("no progress for %.0f minutes", e.after.Minutes())
	if e.queued {
		text += ": its layers wait for other downloads of the engine"
	}
	return text
}

// stalled returns an error if nothing has moved for too long.
func (p *progress) stalled(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &stalledError{after: stalledAfter}
	if p.queuedLocked() {
		e.after, e.queued = queuedAfter, true
	}
	if now.Sub(p.moved) < e.after {
		return nil
	}
	return e
}

// queuedLocked says whether every layer that is not there yet waits for its turn.
func (p *progress) queuedLocked() bool {
	waits := false
	for _, l := range p.layers {
		switch {
		case l.done:
		case l.state == "waiting":
			waits = true
		default:
			return false
		}
	}
	return waits
}

type layer struct {
	state          string // as in the engine's last message, in lower case
	at             int64  // of that message: how far the state is
	done           bool
	current, total int64 // bytes of the download; total is 0 until it is known
}

// maxLayers bounds the layers that are tracked; an image has at most 127.
const maxLayers = 1024

func (p *progress) take(m jsonstream.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := strings.ToLower(m.Status)
	of := p.layers[m.ID]
	if of == nil {
		if !strings.HasPrefix(state, "pulling fs layer") && state != "already exists" || len(p.layers) >= maxLayers {
			return // "Pulling from library/busybox" has an ID, too: the tag
		}
		of = &layer{}
		p.layers[m.ID] = of
	}
	at := int64(0)
	if m.Progress != nil {
		at = m.Progress.Current
	}
	// some engines repeat the state of each layer all the time
	if state != of.state || at != of.at {
		of.state, of.at, p.moved = state, at, time.Now()
	}
	switch {
	case state == "downloading" && m.Progress != nil:
		of.current, of.total = m.Progress.Current, max(of.total, m.Progress.Total)
	case state == "download complete":
		of.current = of.total
	case state == "pull complete", state == "already exists":
		of.done, of.current = true, of.total
	}
}

// String returns, for example, "pulling busybox:1: 2 of 5 layers, 12 of 40 MB".
func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	done, current, total := 0, int64(0), int64(0)
	for _, l := range p.layers {
		if l.done {
			done++
		}
		current += l.current
		total += l.total
	}
	text := fmt.Sprintf("pulling %s: %d of %d layers", p.image, done, len(p.layers))
	if total > 0 {
		text += fmt.Sprintf(", %.1f of %.1f MB", float64(current)/1e6, float64(total)/1e6)
	}
	return text
}
