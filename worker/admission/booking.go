package admission

// Bookings: the earliest time at which an offer can be shown to fit.
// See docs/adr, ADR 91.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// book returns a keep for the earliest time at which the offer can be shown to fit; nil if there is none. By then, enough
// tasks here have ended by their time limits. What is kept for earlier offers stays theirs.
func (k *keeps) book(o *Offer) *keep {
	k.hold(0)
	k.learnReleases()
	cpus, memory := k.capacity.Spare()
	s := simulation{keeps: k, offer: o, need: k.capacity.Whole(o.Msg.Need), cpus: cpus, memory: memory, tasks: k.capacity.Tasks()}
	defer s.undo()
	for _, t := range s.times() {
		s.advance(t)
		if devices, ok := s.fits(t); ok {
			cpus, memory := s.spare(t)
			return &keep{
				offer: o, need: s.need, at: t, end: lastsUntil(t, o.Msg.Limit), booked: true, devices: devices,
				spareCPUs: cpus - s.need.CPUs, spareMemory: memory - s.need.Memory,
			}
		}
	}
	return nil
}

// learnReleases sorts the attempts by when they release what they hold. Those for which no time is known are left out.
func (k *keeps) learnReleases() {
	if k.releases != nil {
		return
	}
	k.releases, k.alone = k.running(), 0
	for _, r := range k.releases {
		if r.Attempt == k.capacity.Alone() {
			k.alone = r.At
		}
	}
	k.releases = slices.DeleteFunc(k.releases, func(r Release) bool { return r.At == Never })
	slices.SortFunc(k.releases, func(a, b Release) int {
		return cmp.Or(cmp.Compare(a.At, b.At), CompareAttempts(a.Attempt, b.Attempt))
	})
}

// simulation steps through future times and computes what is free at each of them.
type simulation struct {
	*keeps
	offer  *Offer
	need   job.Resources
	cpus   int
	memory job.Size
	tasks  int
	next   int // index in releases of the next one
}

// times returns the times at which more may be free than before. Of the times at which tasks end, it returns at most
// maxTimes, the last one among them. It adds the ends of keeps, and the time of the offer's last booking.
func (s *simulation) times() []leaseclock.BootTime {
	var out []leaseclock.BootTime
	for _, r := range s.releases {
		if n := len(out); n == 0 || out[n-1] != r.At {
			out = append(out, r.At)
		}
	}
	if step := (len(out) + maxTimes - 1) / maxTimes; step > 1 {
		some := out[:0]
		for i := (len(out) - 1) % step; i < len(out); i += step {
			some = append(some, out[i])
		}
		out = some
	}
	for _, x := range s.all {
		if x.end != Never {
			out = append(out, x.end)
		}
	}
	if s.offer.booked.at > s.now.Boot {
		out = append(out, s.offer.booked.at)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// advance releases what attempts will have released by a time.
func (s *simulation) advance(t leaseclock.BootTime) {
	for ; s.next < len(s.releases) && s.releases[s.next].At <= t; s.next++ {
		r := &s.releases[s.next]
		s.cpus += r.Need.CPUs
		s.memory += r.Need.Memory
		s.tasks--
		if len(r.Devices) > 0 {
			s.capacity.Pool().Release(r.Attempt.String())
		}
	}
}

// undo takes back all releases.
func (s *simulation) undo() {
	for _, r := range s.releases[:s.next] {
		if len(r.Devices) > 0 { // it was held a moment ago
			_ = s.capacity.Pool().Adopt(r.Attempt.String(), r.Devices, gpu.Milli(r.Need), r.Need.GPUMemory)
		}
	}
}

// spare returns the CPUs and memory that are left at a time, without those of the keeps at that time.
func (s *simulation) spare(t leaseclock.BootTime) (cpus int, memory job.Size) {
	cpus, memory = s.cpus, s.memory
	for i, x := range s.all {
		if s.behind&(1<<i) == 0 && x.at <= t && t < x.end {
			cpus -= x.need.CPUs
			memory -= x.need.Memory
		}
	}
	return cpus, memory
}

// fits reports whether the offer fits from a time on, for as long as its task may take. It returns the devices, which are
// those of its last booking if possible.
func (s *simulation) fits(t leaseclock.BootTime) ([]string, bool) {
	if s.capacity.Alone() != (job.Attempt{}) && s.alone > t || s.need.Exclusive && s.tasks > 0 {
		return nil, false
	}
	if cpus, memory := s.spare(t); s.need.CPUs > cpus && s.need.CPUs > 0 || s.need.Memory > memory && s.need.Memory > 0 {
		return nil, false
	}
	meets, ok := s.meets(t)
	if !ok {
		return nil, false
	}
	need := s.offer.Msg.Need
	if gpu.Count(need) == 0 && !need.Exclusive {
		return nil, true
	}
	s.hold(meets)
	defer s.hold(0)
	return s.choose(need)
}

// meets returns the keeps whose time overlaps with that of a task that starts at t. It returns false if CPUs or memory
// would then be missing, or if one of these keeps or the task is for the whole host.
func (s *simulation) meets(t leaseclock.BootTime) (which uint64, ok bool) {
	until := lastsUntil(t, s.offer.Msg.Limit)
	for i, x := range s.all {
		if s.behind&(1<<i) != 0 || x.end <= t || x.at >= until {
			continue
		}
		missing := x.at > t && (s.need.CPUs > max(0, x.spareCPUs) || s.need.Memory > max(0, x.spareMemory))
		if missing || x.need.Exclusive || s.need.Exclusive {
			return 0, false
		}
		which |= 1 << i
	}
	return which, true
}

// choose chooses among the devices that are free in the simulation.
func (s *simulation) choose(need job.Resources) ([]string, bool) {
	free := s.capacity.Pool().Free()
	able, again := 0, 0
	for _, f := range free {
		if f.Milli < gpu.Milli(need) || need.GPUs > 0 && f.Milli < gpu.Whole {
			continue
		}
		able++
		if slices.Contains(s.offer.booked.devices, f.UUID) && f.Milli == gpu.Whole {
			again++
		}
	}
	switch {
	case able < gpu.Count(need):
		return nil, false
	case need.GPUs > 0 && !need.Exclusive && again == need.GPUs && len(s.offer.booked.devices) == again:
		return s.offer.booked.devices, true
	}
	devices, ok := []string(nil), true
	if gpu.Count(need) > 0 {
		devices, ok = s.capacity.Pool().Choose(need)
	}
	if ok && need.Exclusive {
		devices = devices[:0]
		for _, f := range free {
			devices = append(devices, f.UUID)
		}
	}
	return devices, ok
}
