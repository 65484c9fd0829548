package meter

// The GPUs: their samples, and which of them a task holds without using them.

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

const (
	// IdleAfter is how long a GPU that a task holds must be hardly used to be called idle.
	IdleAfter = 15 * time.Minute
	// idleBelow is the utilization in percent below which it is hardly used.
	idleBelow = 5
)

// gpuState is what the meter keeps of a GPU.
type gpuState struct {
	ring   usage.Ring
	newest usage.Sample
	// low is since when the same task has held the device and every value was below idleBelow; zero: the last value was
	// not, or was not known.
	low    time.Time
	holder job.Attempt
}

// takeGPUs adds the status of the GPUs that was read at a time, and forgets devices that are gone. mu is held.
func (m *Meter) takeGPUs(now, read time.Time, status []gpu.Status, running []Task) {
	holders := map[string]job.Attempt{}
	for _, t := range running {
		for _, uuid := range t.Devices {
			if have, held := holders[uuid]; !held || compareAttempts(t.Attempt, have) < 0 {
				holders[uuid] = t.Attempt
			}
		}
	}
	if len(status) == 0 { // not known now
		for _, g := range m.gpus {
			g.low, g.newest = time.Time{}, usage.Sample{Values: usage.Unknown()}
		}
		return
	}
	seen := map[string]bool{}
	for _, s := range status {
		seen[s.UUID] = true
		g := m.gpus[s.UUID]
		if g == nil {
			g = &gpuState{newest: usage.Sample{Values: usage.Unknown()}}
			m.gpus[s.UUID] = g
		}
		holder, held := holders[s.UUID]
		g.take(usage.Sample{At: read, Values: valuesOf(s)}, now, holder, held)
	}
	maps.DeleteFunc(m.gpus, func(uuid string, _ *gpuState) bool { return !seen[uuid] })
}

// take adds a sample, which may be the same as the last one.
func (g *gpuState) take(s usage.Sample, now time.Time, holder job.Attempt, held bool) {
	low := held && s.Values[usage.GPU] < idleBelow // false if the value is not known, which is NaN
	switch {
	case !low:
		g.low = time.Time{}
	case g.low.IsZero() || g.holder != holder:
		g.low = now
	}
	g.holder = holder
	if s.At.After(g.newest.At) {
		g.newest = s
		g.ring.Add(s)
	}
}

// idle returns since when the GPU is idle; zero: it is not, or that is not known.
func (g *gpuState) idle() time.Time {
	if g.low.IsZero() || g.newest.At.Sub(g.low) < IdleAfter {
		return time.Time{}
	}
	return g.low
}

// Idle returns since when GPUs are idle, by UUID. GPUs that are not idle, or for which that is not known, are missing.
func (m *Meter) Idle() map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]time.Time{}
	for uuid, g := range m.gpus {
		if since := g.idle(); !since.IsZero() {
			all[uuid] = since
		}
	}
	return all
}

// latestGPUs returns the newest sample of each GPU. mu is held.
func (m *Meter) latestGPUs() []GPUSample {
	var all []GPUSample
	for _, uuid := range slices.Sorted(maps.Keys(m.gpus)) {
		g := m.gpus[uuid]
		all = append(all, GPUSample{UUID: uuid, Sample: g.newest, Idle: g.idle()})
	}
	return all
}

func compareAttempts(a, b job.Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
}
