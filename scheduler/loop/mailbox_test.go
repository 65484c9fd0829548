package loop

// The mailbox by member: no message waits behind those of another member, whatever that one sends.

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// Some members send the largest messages as fast as they can, and the loop is slow. Their messages wait, up to a bound.
// Those of others are in the next step: renewals, ends of tasks, sessions.
func TestFloodOfOneMemberDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMailbox()
		p, f := largeGuest(7)
		hello := step.FromWorker{Msg: contract.Hello{Profile: p, Free: f}}
		var floods sync.WaitGroup
		const members = 100
		sent := make([]int, members)
		for i := range members {
			floods.Go(func() {
				name := job.Peer(rune('A' + i))
				for b.from(name, step.FromWorker{Peer: name, Msg: hello.Msg}) {
					sent[i]++
				}
			})
		}
		synctest.Wait()
		weight := contract.Weight(hello.Msg)
		total := 0
		for i, n := range sent {
			if n > 1+perMember.Weight/weight {
				t.Errorf("%d messages of member %d wait, want at most %v", n, i, 1+perMember.Weight/weight)
			}
			total += n * weight
		}
		if total > perMember.All {
			t.Errorf("%d MiB wait, want at most that of all members", total>>20)
		}
		for range 200 {
			b.takeMail(nil) // now each of them has a backlog
			synctest.Wait()
		}
		honest := []step.Event{
			step.SessionUp{Peer: "ben"},
			step.FromWorker{Peer: "ben", Msg: contract.Renew{Group: 7}},
			step.FromWorker{Peer: "ben", Msg: contract.Event{State: job.Succeeded}},
			step.SessionDown{Peer: "ben"},
		}
		begin := time.Now()
		for _, e := range honest {
			if !b.from("ben", e) || !b.fromOwn("self", step.FromWorker{Peer: "self"}) || !b.call("amy", mail{event: step.Tick{}}) {
				t.Fatal("a message of an honest member, of the own worker or a request is refused")
			}
		}
		if time.Since(begin) > 0 {
			t.Error("messages of an honest member had to wait")
		}
		got := b.takeMail(nil)
		var kinds []string
		for _, e := range got[:2*len(honest)] { // these and those of the own worker go first
			switch e := e.(type) {
			case step.SessionUp, step.SessionDown:
				kinds = append(kinds, fmt.Sprintf("%T", e))
			case step.FromWorker:
				if e.Peer == "ben" {
					kinds = append(kinds, fmt.Sprintf("%T", e.Msg))
				}
			}
		}
		if want := []string{"step.SessionUp", "contract.Renew", "contract.Event", "step.SessionDown"}; !slices.Equal(kinds, want) {
			t.Errorf("of the honest member came %q first, want %q", kinds, want)
		}
		b.close()
		floods.Wait()
		if b.from("ben", step.SessionUp{}) {
			t.Error("a closed mailbox accepts a message")
		}
	})
}

// largeGuest is a host with the most GPUs that a message may name, of several models.
func largeGuest(classes int) (contract.Profile, contract.Free) {
	p := contract.Profile{Peer: "guest", Name: "guest", Store: "s", CPUs: 256, Memory: 1 << 40, Worker: true, Drivers: []string{contract.DriverExec}}
	f := contract.Free{CPUs: 64, Memory: 1 << 40}
	for i := range contract.MaxGPUs {
		p.GPUs = append(p.GPUs, gpu.Device{UUID: fmt.Sprintf("GPU-%040d", i), Class: fmt.Sprint("h100-80gb-", i%classes), Model: "NVIDIA", Memory: 80 << 30})
	}
	for i := range contract.MaxGPUs {
		f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: p.GPUs[contract.MaxGPUs-1-i].UUID, Memory: 80 << 30, Milli: 1000})
	}
	return p, f
}
