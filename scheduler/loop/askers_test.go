package loop

import (
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
)

// Askers take turns, however many calls one of them makes, and each of them finds a slot.
func TestAskersTakeTurns(t *testing.T) {
	b := newMailbox()
	said := ""
	say := func(text string) mail { return mail{look: func(*scheduler.Core) { said += text }} }
	n := 0
	for b.call("amy", say("a")) {
		n++
	}
	if n != maxCall/2 {
		t.Errorf("one asker alone has %d of %d calls, want %v", n, maxCall, maxCall/2)
	}
	for _, text := range []string{"1", "2", "3"} {
		if !b.call("ben", say(text)) || !b.call("", say("d")) {
			t.Error("one asker crowds out the others")
		}
	}
	for range 8 {
		m, _ := b.takeCall()
		m.look(nil)
	}
	if said != "a1da2da3" {
		t.Errorf(`the calls come in the order %s, want "a1da2da3"`, said)
	}
	left := 0
	for _, there := b.takeCall(); there; _, there = b.takeCall() {
		left++
	}
	if left != n+6-8 || len(b.askers.lines) > 0 || b.askers.calls != 0 {
		t.Errorf("%d calls were left, then %+v, want %v, no lines and calls 0", left, b.askers, n+6-8)
	}
}

// While one asker keeps the loop busy with looks, a job of another asker is accepted and runs soon.
func TestLooksOfOneAskerDelayNoOther(t *testing.T) {
	const looks, each = 400, 10 * time.Millisecond
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		amy, ben := job.WithAsker(t.Context(), "amy"), job.WithAsker(t.Context(), "ben")
		var asking sync.WaitGroup
		for range looks {
			asking.Go(func() { _ = h.loop.calls.look(amy, func(*scheduler.Core) { time.Sleep(each) }) })
		}
		time.Sleep(each / 2)
		began := time.Now()
		j, err := h.loop.Submit(ben, request("b"))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*each {
			t.Errorf("another asker's submission took %s behind %d looks of %s, want at most %v", took, looks, each, 5*each)
		}
		for h.host.started() == 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 10*each {
			t.Errorf("its task %s was started after %s, want at most %v", j.ID, took, 10*each)
		}
		asking.Wait()
	})
}

func (h *fakeHost) started() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts
}
