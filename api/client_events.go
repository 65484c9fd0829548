package api

// The client's stream of events, which survives a broken connection.

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// EventFilter selects events; the zero value selects those of all jobs.
type EventFilter struct {
	Jobs []job.ID // at most 1000
	Mine bool     // only the caller's own jobs
	// Ended asks only for the end of each of Jobs. If the daemon has answered this client before, Events then keeps trying
	// even if the daemon does not answer at the start.
	Ended bool
	// The other fields select events of the whole cluster. Daemons of earlier versions do not know them.
	Kinds []EventKind // none: all
	User  string      // whose jobs; empty: any
	Node  string      // ID or name; empty: any
	Since time.Time   // begin with the events since then, as far as the daemon has them
	Once  bool        // end after the present events
}

func (f EventFilter) query() url.Values {
	q := eventsInput{Job: texts(f.Jobs), Mine: f.Mine, Ended: f.Ended}.query()
	kinds := make([]string, 0, len(f.Kinds))
	for _, k := range f.Kinds {
		kinds = append(kinds, string(k))
	}
	for name, v := range map[string]string{"kind": strings.Join(kinds, ","), "user": f.User, "node": f.Node} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if f.Once {
		q.Set("follow", "false")
	}
	return q
}

// Events returns a stream of events. First comes EventOpen, then each job that the filter names in its present state,
// then each change. When the connection breaks, it yields EventSilent, connects again and yields a new EventOpen. A stream
// of named jobs then yields their present states. Any other stream goes on after the last event, or yields EventGap if the
// daemon no longer has the events since. The stream ends with an error; if ctx has ended, with that of ctx.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if len(f.Jobs) > maxWatched {
			yield(Event{}, bad("events of %d jobs: at most %d in one stream", len(f.Jobs), maxWatched))
			return
		}
		opened, breaks, last := false, 0, ""
		for {
			more, got, err := c.eventsOnce(ctx, f, &last, yield)
			opened = opened || got
			if !more {
				return
			}
			if got {
				breaks = 0
			}
			breaks++
			err = cmp.Or(ctx.Err(), err)
			opened = opened || c.mayBeOpen(f, err)
			if ctx.Err() != nil || !opened || breaks > maxBreaks || !mayReturn(err) {
				yield(Event{}, err)
				return
			}
			silent := newEvent(EventSilent)
			silent.Detail = err.Error()
			if !yield(silent, nil) {
				return
			}
			pause(ctx, breaks)
		}
	}
}

// eventsOnce yields the events after last over one connection, until it breaks. more is false if the receiver wants no more
// events, or has all of them.
func (c *Client) eventsOnce(ctx context.Context, f EventFilter, last *string, yield func(Event, error) bool) (more, got bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(eventSilence, cancel)
	defer alive.Stop()
	header := http.Header{}
	if *last != "" {
		header.Set("Last-Event-ID", *last)
	}
	resp, err := c.open(ctx, http.MethodGet, "/v1/events", f.query(), nil, header)
	if err != nil {
		return true, false, err
	}
	defer resp.Body.Close()
	left := awaitedOf(f.Jobs)
	err = readEvents(resp.Body, func() { alive.Reset(eventSilence) }, func(e Event) bool {
		got = true
		delete(left, e.ID)
		*last = cmp.Or(e.EventID, *last)
		more = yield(e, nil)
		return more
	})
	if err == nil && !more && got {
		if f.Ended && len(left) == 0 { // the daemon ends the stream too, so the connection can be reused
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		return false, got, nil
	}
	if err == nil && got && f.Once {
		return false, got, nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return true, got, &unreachable{text: fmt.Sprintf("the stream of events from %s broke: %s", c.where, cause(err)), cause: err}
}
