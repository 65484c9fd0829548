package fleet

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// aHost is one host of a table that says that it has so many CPUs free.
func aHost(t *Table, p job.Peer, cpus int) *Host {
	h := t.Add(p, false)
	t.Hello(h, contract.Hello{
		Profile: contract.Profile{Name: string(p), CPUs: cpus, Worker: true, Drivers: []string{contract.DriverExec}},
		Free:    contract.Free{CPUs: cpus},
	}, start)
	t.Count(start)
	return h
}

func rankOf(n int) Rank { return Rank{Born: start.Add(time.Duration(n)), Job: job.ID(fmt.Sprint(n))} }

// What is left is the host's word less its claims: the direct and the held ones for all, the queued ones for those
// that rank behind them.
func TestLeft(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	claims := map[ClaimState]*Claim{}
	for i, state := range []ClaimState{Direct, Queued, Direct} {
		c := &Claim{ID: uint64(i), Rank: rankOf(10 * i), Need: job.Resources{CPUs: 1 << i}, State: state}
		h.Claim(c)
		claims[state] = c
	}
	left := func(n int) int {
		r := rankOf(n)
		return h.LeftFor(&r).CPUs
	}
	if h.Left().CPUs != 3 || left(5) != 3 || left(10) != 3 || left(15) != 1 {
		t.Errorf("left: %d, before the queue %d, for itself %d, behind it %d", h.Left().CPUs, left(5), left(10), left(15))
	}
	h.Hold(claims[Queued], nil)
	if h.Left().CPUs != 1 || h.Claims.Queued() != 0 {
		t.Errorf("%d left once the queued claim is held", h.Left().CPUs)
	}
	h.Unclaim(claims[Queued])
	if h.Left().CPUs != 1 {
		t.Errorf("%d left of the host's old word once the claim is gone, want 1", h.Left().CPUs)
	}
	h.SetFree(contract.Free{CPUs: 6})
	if h.Left().CPUs != 1 {
		t.Errorf("%d left of the host's new word, want 1", h.Left().CPUs)
	}
	h.Unclaim(claims[Direct])
	h.Unclaim(claims[Direct])
	if h.Left().CPUs != 5 {
		t.Errorf("%d left after the last claim but one, want 5", h.Left().CPUs)
	}
}

// A full queue takes what ranks before its last, and nothing takes more claims than may be.
func TestQueueIsBounded(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	need := job.Resources{CPUs: 8}
	ask := func(rank int, need job.Resources, limited bool) *Request {
		return &Request{Shape: &Shape{Need: need}, Rank: rankOf(rank), Limited: limited}
	}
	for i := range MaxQueued {
		if h.Displaced(ask(-1, need, false)) != nil {
			t.Fatalf("a claim gives way though %d queue", i)
		}
		h.Claim(&Claim{ID: uint64(i), Rank: rankOf(100 - i), Need: need, State: Queued})
	}
	table.Count(start)
	before, behind := ask(99, need, false), ask(101, need, false)
	if last := h.Displaced(before); last == nil || last.ID != 0 {
		t.Errorf("the last of the queue is %+v", last)
	}
	if !table.MayQueue(h, before) || table.MayQueue(h, behind) {
		t.Error("what ranks before the last of the queue takes its place, and nothing else")
	}
	small := job.Resources{CPUs: 1}
	for _, other := range []*Request{ask(101, need, true), ask(101, small, false)} {
		if h.Displaced(other) != nil || !table.MayQueue(h, other) {
			t.Errorf("no place for what asks for something else: %+v", other)
		}
	}
	n := uint64(MaxQueued)
	for i := 1; h.Claims.Queued() < MaxQueuedAll; i++ {
		for range MaxQueued {
			n++
			h.Claim(&Claim{ID: n, Rank: rankOf(100 + int(n)), Need: job.Resources{CPUs: 1, GPUs: i}, State: Queued})
		}
	}
	table.Count(start)
	if last := h.Displaced(ask(101, small, false)); last == nil || last.ID != n {
		t.Errorf("the last of all is %+v", last)
	}
	if !table.MayQueue(h, ask(101, small, false)) || table.MayQueue(h, ask(200, small, false)) || table.MayQueue(h, behind) {
		t.Error("what ranks before the last of all takes its place, and nothing else")
	}
	for i := h.Claims.Queued(); i < maxClaims; i++ {
		h.Claim(&Claim{ID: uint64(i)})
	}
	table.Count(start)
	if table.MayQueue(h, before) || table.Row(h.Slot()).Left != nothing {
		t.Errorf("a host with %d claims takes more", maxClaims)
	}
}

// A host that pauses, has no lease or has gone is offered nothing.
func TestPauses(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	open := func(now time.Time) bool {
		table.Count(now)
		return table.Row(h.Slot()).Left.CPUs == 8
	}
	h.Pause(start.Add(time.Second))
	if open(start) {
		t.Error("it pauses, and is offered something")
	}
	if h.Touch(); !open(start.Add(time.Second)) {
		t.Error("its pause is over, and it is offered nothing")
	}
	if h.Leaseless(); open(start.Add(time.Second)) {
		t.Error("it has no lease, and is offered something")
	}
	if !h.Leased() || h.Leased() || !open(start.Add(time.Second)) {
		t.Error("it has a lease, and is offered nothing")
	}
	if h.Down(start.Add(2 * time.Second)); open(start.Add(2 * time.Second)) {
		t.Error("it has gone, and is offered something")
	}
}

// Suffices finds out what Fit would, without choosing.
func TestSufficesAsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []gpu.Device
		var free []contract.FreeGPU
		for i := range rapid.IntRange(0, 5).Draw(t, "devices") {
			d := gpu.Device{
				UUID:   fmt.Sprint(i),
				Class:  rapid.SampledFrom([]string{"h100-80gb", "h100-80gb", "t4"}).Draw(t, "class"),
				Memory: job.Size(rapid.IntRange(1, 2).Draw(t, "memory")),
				Parent: rapid.SampledFrom([]string{"", "", "GPU"}).Draw(t, "parent"),
			}
			g := contract.FreeGPU{
				UUID: d.UUID, Memory: job.Size(rapid.IntRange(0, 2).Draw(t, "free")),
				Milli: rapid.SampledFrom([]int{0, 500, 1000}).Draw(t, "milli"),
			}
			if rapid.IntRange(0, 5).Draw(t, "listed") > 0 {
				all = append(all, d)
			}
			free = append(free, g)
		}
		need := job.Resources{
			GPUs:      rapid.IntRange(0, 3).Draw(t, "gpus"),
			GPUModel:  rapid.SampledFrom([]string{"", "h100"}).Draw(t, "model"),
			GPUMemory: job.Size(rapid.IntRange(0, 2).Draw(t, "least")),
		}
		if need.GPUs == 0 && rapid.Bool().Draw(t, "share") {
			need.GPUShare = 0.5
		}
		d := devicesOf(all)
		d.setFree(free)
		f := contract.Free{GPUs: free}
		if _, lack := d.Fit(need, &f); d.Suffices(need, &f) != (lack == "") {
			t.Errorf("%+v of %+v: it lacks %q", need, free, lack)
		}
	})
}
