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

// aHost is a host of a table that reports so many free CPUs.
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

// What is left is the reported capacity less the claims: the direct and the held ones for all requests, the queued ones
// for requests that rank behind them.
func TestClaimsReduceWhatIsLeft(t *testing.T) {
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
		t.Errorf("left: %d, before the queue %d, for the claim itself %d, behind it %d, want 3, 3, 3 and 1", h.Left().CPUs, left(5), left(10), left(15))
	}
	h.Hold(claims[Queued], nil)
	if h.Left().CPUs != 1 || h.Claims.Queued() != 0 {
		t.Errorf("%d left after the queued claim is held, want 1 and no queued claim", h.Left().CPUs)
	}
	h.Unclaim(claims[Queued])
	if h.Left().CPUs != 1 {
		t.Errorf("%d left of the earlier report after the claim has gone, want 1", h.Left().CPUs)
	}
	h.SetFree(contract.Free{CPUs: 6})
	if h.Left().CPUs != 1 {
		t.Errorf("%d left of the newer report, want 1", h.Left().CPUs)
	}
	h.Unclaim(claims[Direct])
	h.Unclaim(claims[Direct])
	if h.Left().CPUs != 5 {
		t.Errorf("%d left after the last claim but one, want 5", h.Left().CPUs)
	}
}

// A full queue accepts a request that ranks before its last claim. The number of all claims is bounded.
func TestQueueIsBounded(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	need := job.Resources{CPUs: 8}
	ask := func(rank int, need job.Resources, limited bool) *Request {
		return &Request{Shape: &Shape{Need: need}, Rank: rankOf(rank), Limited: limited}
	}
	for i := range MaxQueued {
		if h.Displaced(ask(-1, need, false)) != nil {
			t.Fatalf("a claim is displaced though only %d queue", i)
		}
		h.Claim(&Claim{ID: uint64(i), Rank: rankOf(100 - i), Need: need, State: Queued})
	}
	table.Count(start)
	before, behind := ask(99, need, false), ask(101, need, false)
	if last := h.Displaced(before); last == nil || last.ID != 0 {
		t.Errorf("the last of the queue is %+v, want the claim 0", last)
	}
	if !table.MayQueue(h, before) || table.MayQueue(h, behind) {
		t.Error("a full queue must accept exactly the requests that rank before its last claim")
	}
	small := job.Resources{CPUs: 1}
	for _, other := range []*Request{ask(101, need, true), ask(101, small, false)} {
		if h.Displaced(other) != nil || !table.MayQueue(h, other) {
			t.Errorf("displaced %+v for a request of another kind, want none and a place", other)
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
		t.Errorf("the last of all claims is %+v, want the claim with the last rank", last)
	}
	if !table.MayQueue(h, ask(101, small, false)) || table.MayQueue(h, ask(200, small, false)) || table.MayQueue(h, behind) {
		t.Error("a queue full of all kinds must accept exactly the requests that rank before its last claim")
	}
	for i := h.Claims.Queued(); i < maxClaims; i++ {
		h.Claim(&Claim{ID: uint64(i)})
	}
	table.Count(start)
	if table.MayQueue(h, before) || table.Row(h.Slot()).Left != nothing {
		t.Errorf("a host with %d claims accepts more", maxClaims)
	}
}

// A host that pauses, has no lease or has gone is offered nothing.
func TestClosedHostIsOfferedNothing(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	open := func(now time.Time) bool {
		table.Count(now)
		return table.Row(h.Slot()).Left.CPUs == 8
	}
	h.Pause(start.Add(time.Second))
	if open(start) {
		t.Error("a pausing host is offered something")
	}
	if h.Touch(); !open(start.Add(time.Second)) {
		t.Error("a host after its pause is offered nothing")
	}
	if h.Leaseless(); open(start.Add(time.Second)) {
		t.Error("a host without a lease is offered something")
	}
	if !h.Leased() || h.Leased() || !open(start.Add(time.Second)) {
		t.Error("a host with a lease is offered nothing")
	}
	if h.Down(start.Add(2 * time.Second)); open(start.Add(2 * time.Second)) {
		t.Error("a host that has gone is offered something")
	}
}

// Suffices gives the answer of Fit without choosing devices.
func TestSufficesAgreesWithFit(t *testing.T) {
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
			t.Errorf("%+v of %+v: Fit lacks %q, and Suffices disagrees", need, free, lack)
		}
	})
}
