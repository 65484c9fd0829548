package fleet

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// What a host keeps is kept from tasks of certain priorities, and from tasks that would last too long. The text names
// the job, its user and the time.
func TestKeptCapacityNamesItsJob(t *testing.T) {
	const id = job.ID("0000000000-0000000000001")
	now := time.Unix(1000, 0)
	gpus := func(n, priority int, limit time.Duration) Asked {
		return Asked{Need: job.Resources{CPUs: 1, GPUs: n}, Priority: priority, Limit: limit}
	}
	booked := contract.Kept{Job: id, User: "ben", Priority: 50, GPUs: []int{1, 2}, Milli: 1000, For: time.Hour, Starts: true}
	with := func(change func(*contract.Kept)) []contract.Kept {
		k := booked
		change(&k)
		return []contract.Kept{k}
	}
	for name, c := range map[string]struct {
		kept  []contract.Kept
		asked Asked
		after time.Duration
		want  string
	}{
		"nothing is kept":      {nil, gpus(3, 50, 0), 0, ""},
		"it fits beside":       {[]contract.Kept{booked}, gpus(1, 50, 0), 0, ""},
		"it does not fit":      {[]contract.Kept{booked}, gpus(4, 50, 0), 0, ""},
		"without a limit":      {[]contract.Kept{booked}, gpus(2, 50, 0), 0, "keeps 2 gpus for job " + string(id) + " of ben, which starts there within 1h0m0s"},
		"later":                {[]contract.Kept{booked}, gpus(2, 50, 0), time.Minute, "keeps 2 gpus for job " + string(id) + " of ben, which starts there within 59m0s"},
		"it ends before":       {[]contract.Kept{booked}, gpus(2, 50, time.Hour), 0, ""},
		"it ends later":        {[]contract.Kept{booked}, gpus(2, 50, time.Hour+1), 0, "keeps 2 gpus for job " + string(id) + " of ben, which starts there within 1h0m0s"},
		"a higher priority":    {[]contract.Kept{booked}, gpus(2, 51, 0), 0, ""},
		"the job itself":       {[]contract.Kept{booked}, Asked{Job: id, Need: job.Resources{GPUs: 3}, Priority: 50}, 0, ""},
		"from lower ones, 50":  {with(func(k *contract.Kept) { k.Below = true }), gpus(2, 50, 0), 0, ""},
		"from lower ones, 49":  {with(func(k *contract.Kept) { k.Below, k.Starts, k.For = true, false, 0 }), gpus(2, 49, 0), 0, "keeps 2 gpus for job " + string(id) + " of ben, and nothing shows when that starts"},
		"in a turn":            {with(func(k *contract.Kept) { k.Starts = false }), gpus(2, 50, time.Second), 0, "keeps 2 gpus for job " + string(id) + " of ben for 1h0m0s more"},
		"private":              {with(func(k *contract.Kept) { k.Job, k.User, k.GPUs = "", "", []int{0} }), gpus(3, 50, 0), 0, "keeps 1 gpu for another job, which starts there within 1h0m0s"},
		"parts of GPUs":        {with(func(k *contract.Kept) { k.Milli = 500 }), gpus(2, 50, 0), 0, "keeps parts of 2 gpus for job " + string(id) + " of ben, which starts there within 1h0m0s"},
		"CPUs":                 {with(func(k *contract.Kept) { k.GPUs, k.CPUs = nil, 8 }), gpus(1, 50, 0), 0, "keeps 8 cpus for job " + string(id) + " of ben, which starts there within 1h0m0s"},
		"CPUs that it leaves":  {with(func(k *contract.Kept) { k.GPUs, k.CPUs = nil, 7 }), gpus(1, 50, 0), 0, ""},
		"memory":               {with(func(k *contract.Kept) { k.GPUs, k.Memory = nil, 64<<30 }), Asked{Need: job.Resources{Memory: 1 << 30}, Priority: 50}, 0, "keeps 64GiB of memory for job " + string(id) + " of ben, which starts there within 1h0m0s"},
		"the second of two":    {[]contract.Kept{with(func(k *contract.Kept) { k.GPUs = []int{0} })[0], with(func(k *contract.Kept) { k.User = "cyd" })[0]}, gpus(2, 50, 0), 0, "keeps 2 gpus for job " + string(id) + " of cyd, which starts there within 1h0m0s"},
		"everything":           {with(func(k *contract.Kept) { k.GPUs, k.CPUs = []int{0, 1, 2}, 8 }), gpus(1, 50, 0), 0, "keeps 3 gpus for job " + string(id) + " of ben, which starts there within 1h0m0s"},
		"the same GPUs twice":  {[]contract.Kept{booked, booked}, gpus(1, 50, 0), 0, ""},
		"for the whole host":   {[]contract.Kept{booked}, Asked{Need: job.Resources{Exclusive: true}, Priority: 50}, 0, "keeps 2 gpus for job " + string(id) + " of ben, which starts there within 1h0m0s"},
		"CPUs are not kept 2x": {[]contract.Kept{with(func(k *contract.Kept) { k.GPUs, k.CPUs = nil, 4 })[0], with(func(k *contract.Kept) { k.GPUs, k.CPUs = nil, 4 })[0]}, Asked{Need: job.Resources{CPUs: 4}, Priority: 50}, 0, ""},
	} {
		table := NewTable()
		h := near(&table, "a", 8, 64<<30, 3, 3, "h100-80gb")
		h.Heard(now)
		h.Availability(contract.Availability{Free: h.Free, Kept: c.kept})
		if got := KeptFrom(h, c.asked, now.Add(c.after)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		h.Down(now)
		if got := KeptFrom(h, c.asked, now); got != "" {
			t.Errorf("%s: %q after its session has ended, want none", name, got)
		}
	}
}
