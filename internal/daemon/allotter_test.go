package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// fakeSource is some other daemons: "new" answers, "old" has no such route, and "gone" does not answer.
type fakeSource struct {
	mu    sync.Mutex
	asked map[job.Peer][]int // the users of each message
}

func (s *fakeSource) Allotments(ctx context.Context, p job.Peer, states []contract.Allotment) ([]contract.Allotment, error) {
	s.mu.Lock()
	s.asked[p] = append(s.asked[p], len(states))
	s.mu.Unlock()
	switch p {
	case "old":
		return nil, fmt.Errorf("%w", api.ErrNotFound)
	case "gone":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(10 * time.Millisecond)
	return states, nil
}

// However many users are asked for at once, few messages are sent, and every round ends, with the daemons that
// answered.
func TestAllotterAsksForManyUsersInFewMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{asked: map[job.Peer][]int{}}
		a := newAllotter("here", func() []job.Peer { return []job.Peer{"here", "new", "old", "gone"} }, slog.New(slog.DiscardHandler))
		a.source, a.others = source, func() []*owner { return nil }
		var mu sync.Mutex
		told := map[string][]step.AllotmentAnswer{}
		a.tell = func(e step.AllotmentsHeard) {
			mu.Lock()
			defer mu.Unlock()
			told[e.User] = e.Answers
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := a.run(ctx); err != nil {
				t.Error(err)
			}
		})
		const users = 4000
		for i := range users {
			a.Allot([]step.AllotmentAsk{{Round: uint64(i + 1), State: contract.Allotment{User: fmt.Sprint("u", i)}}})
		}
		a.Allot([]step.AllotmentAsk{{State: contract.Allotment{User: "u1"}, To: "new"}}) // a message to one daemon
		time.Sleep(10 * time.Second)
		cancel()
		running.Wait()
		if len(told) != users {
			t.Errorf("got %d rounds that ended, want %d", len(told), users)
		}
		for user, answers := range told {
			var from []job.Peer
			for _, x := range answers {
				from = append(from, x.Peer)
				if x.Peer == "new" && !slices.ContainsFunc(x.States, func(s contract.Allotment) bool { return s.User == user }) {
					t.Errorf("got no answer about %s, want one", user)
				}
			}
			if slices.Sort(from); !slices.Equal(from, []job.Peer{"here", "new", "old"}) {
				t.Fatalf("%s: got answers of %v, want here, new and old", user, from)
			}
		}
		if n := len(source.asked["gone"]); n > users/api.MaxAllotments+allotBatches+1 {
			t.Errorf("got %d messages, want at most %d", n, users/api.MaxAllotments+allotBatches+1)
		}
		if len(source.asked["new"]) != len(source.asked["old"])+1 {
			t.Errorf("got %d messages to one daemon and %d to another, want one more to the first", len(source.asked["new"]), len(source.asked["old"]))
		}
	})
}

// A daemon that is starting does not report that its users hold nothing, because it does not know yet.
func TestNothingIsAllottedBeforeTheJobsAreKnown(t *testing.T) {
	o := &owner{led: make(chan struct{})}
	a := allotments{owners{home: o, by: map[job.Group]*owner{1: o}}}
	said, err := a.Allotments(t.Context(), "there", []contract.Allotment{{User: "amy"}})
	if !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("got %v, %v, want ErrUnavailable", said, err)
	}
}
