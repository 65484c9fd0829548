package daemon

import (
	"context"
	"errors"
	"os/user"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/worker/step"
	"github.com/musterhq/muster/worker/useraccounts"
)

// A lookup that hangs delays neither the answers to others nor the end of the daemon. A user counts as absent only if a
// directory says so.
func TestHangingLookupDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		hangs := make(chan struct{})
		l := newLookups(func(name string) (int, error) {
			switch name {
			case "hangs":
				<-hangs
			case "nobody":
				return 0, user.UnknownUserError(name)
			case "fails":
				return 0, errors.New("connection refused")
			}
			return 1000, nil
		})
		type answer struct {
			user string
			is   useraccounts.Presence
		}
		answers := make(chan answer, useraccounts.MaxLookUps)
		done := make(chan error, 1)
		go func() {
			done <- l.run(ctx, func(user string, is useraccounts.Presence) { answers <- answer{user, is} })
		}()
		began := time.Now()
		for _, name := range []string{"hangs", "hangs", "amy", "nobody", "fails"} {
			l.ask([]step.UserLookup{{User: name, For: "ada"}})
		}
		synctest.Wait()
		got := map[string]useraccounts.Presence{}
		for range len(answers) {
			a := <-answers
			got[a.user] = a.is
		}
		if len(got) != 3 || got["amy"] != useraccounts.Present || got["nobody"] != useraccounts.Absent || got["fails"] != useraccounts.Unknown {
			t.Errorf("got %v, want amy present, nobody absent, and the one that fails unknown", got)
		}
		stop()
		if err := <-done; err != nil || time.Since(began) != 0 {
			t.Errorf("run = %v after %s, want no error at once", err, time.Since(began))
		}
		close(hangs)
		synctest.Wait()
		if len(answers) != 2 {
			t.Errorf("got %d late answers, want 2", len(answers))
		}
	})
}

// Lookups of made-up users that hang do not delay lookups of other schedulers.
func TestHangingLookupsDelayNoOtherScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		hangs := make(chan struct{})
		l := newLookups(func(name string) (int, error) {
			if name == "hangs" {
				<-hangs
			}
			return 1000, nil
		})
		answers := make(chan string, useraccounts.MaxLookUps)
		done := make(chan error, 1)
		go func() { done <- l.run(ctx, func(user string, _ useraccounts.Presence) { answers <- user }) }()
		for range useraccounts.MaxLookUps / 2 {
			l.ask([]step.UserLookup{{User: "hangs", For: "mallory"}})
		}
		l.ask([]step.UserLookup{{User: "amy", For: "ada"}})
		synctest.Wait()
		if len(answers) != 1 || <-answers != "amy" {
			t.Error("a lookup waits for those of another scheduler")
		}
		close(hangs)
		synctest.Wait()
		if n := len(answers); n != useraccounts.MaxLookUps/2 {
			t.Errorf("got %d answers after the directory's, want %d", n, useraccounts.MaxLookUps/2)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
