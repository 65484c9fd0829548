package fleet

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// alone is a need for a whole host with at least one CPU.
var alone = job.Resources{CPUs: 1, Exclusive: true}

// An exclusive need fits only a host without tasks. Nothing fits beside an exclusive task.
func TestExclusiveNeedFitsOnlyAnEmptyHost(t *testing.T) {
	devices := devicesOf(sameDevices(2, "h100", 80e9))
	for _, c := range []struct {
		free contract.Free
		need job.Resources
		lack string
	}{
		{contract.Free{CPUs: 8}, alone, ""},
		{contract.Free{CPUs: 8, Tasks: 1}, alone, "tasks"},
		{contract.Free{CPUs: 8, Tasks: 1}, job.Resources{CPUs: 1}, ""},
		{contract.Free{CPUs: 8}, job.Resources{CPUs: 9, Exclusive: true}, "cpus"},
		{contract.Free{CPUs: 8}, job.Resources{CPUs: 1, GPUs: 3, Exclusive: true}, "gpus"},
		{contract.Free{Tasks: 1, Exclusive: true}, job.Resources{}, "tasks"},
		{contract.Free{Tasks: 1, Exclusive: true}, alone, "tasks"},
	} {
		_, lack := devices.Fit(c.need, &c.free)
		if suffices := devices.Suffices(c.need, &c.free); lack != c.lack || suffices != (lack == "") {
			t.Errorf("%+v into %+v: lacks %q, suffices %v; want %q", c.need, c.free, lack, suffices, c.lack)
		}
		if lack == "" && !FootprintOf(c.need).Within(footprintOfFree(&c.free)) || lack == "tasks" && FootprintOf(c.need).Within(footprintOfFree(&c.free)) {
			t.Errorf("the footprint of %+v does not agree with that of %+v", c.need, c.free)
		}
	}
	p := contract.Profile{CPUs: 8}
	if !FootprintOf(alone).Within(footprintOfProfile(&p)) {
		t.Error("an exclusive task could never run on a host with 8 CPUs")
	}
}

// An empty host gets offers. Then nothing is left of it for an exclusive task, and nothing for any task after an offer
// of an exclusive one. A queued claim counts for the tasks that rank behind it.
func TestClaimLeavesNothingForAnExclusiveTask(t *testing.T) {
	for _, c := range []struct {
		state ClaimState
		need  job.Resources
		left  string // what fits: an exclusive task, one CPU, nothing at all
	}{
		{Direct, job.Resources{CPUs: 1}, "false true true"},
		{Direct, job.Resources{}, "false true true"},
		{Direct, alone, "false false false"},
		{Queued, alone, "false false false"},
		{Queued, job.Resources{CPUs: 1}, "false true true"},
	} {
		table := NewTable()
		h := aHost(&table, "n1", 8)
		shape := func(need job.Resources) Request {
			return Request{Shape: &Shape{Need: need, Foot: FootprintOf(need)}, Rank: rankOf(99)}
		}
		fits := func(need job.Resources) bool {
			r := shape(need)
			return r.FitsNow(h)
		}
		x := &Claim{ID: 1, Rank: rankOf(1), Need: c.need, State: c.state}
		h.Claim(x)
		table.Count(start)
		if got := fmt.Sprint(fits(alone), fits(job.Resources{CPUs: 1}), fits(job.Resources{})); got != c.left {
			t.Errorf("with a claim %d of %+v: %s, want %s", c.state, c.need, got, c.left)
		}
		h.Unclaim(x)
		if table.Count(start); !fits(alone) || !FootprintOf(alone).Within(table.Row(h.Slot()).Left) {
			t.Errorf("an exclusive task does not fit after the claim %d has gone", c.state)
		}
	}
}

// A host that declines an exclusive task for its user's quota may still accept small tasks of the user.
func TestQuotaOfAnExclusiveTaskAllowsSmallTasks(t *testing.T) {
	var qs Quotas
	qs.refuse("amy", alone, "enough")
	small := job.Resources{CPUs: 4}
	if qs.Over("amy", small) != "" || qs.Over("amy", alone) == "" {
		t.Errorf("after an exclusive task was declined, a small one is %q and an exclusive one %q, want only the second to be over the quota", qs.Over("amy", small), qs.Over("amy", alone))
	}
	qs.refuse("amy", small, "enough")
	large := job.Resources{CPUs: 4, Exclusive: true}
	if qs.Over("amy", large) == "" {
		t.Error("after a small task was declined, a whole host is not over the quota")
	}
}
