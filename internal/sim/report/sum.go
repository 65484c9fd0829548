package report

// The end of a Tally: figures from what it has added up.

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// MaxUsers bounds Figures.Users.
const MaxUsers = 100

// short is the least run time in a slowdown: shorter jobs count as this, so that their slowdowns do not dominate.
const short = 10 * time.Second

// Figures returns the figures of the run, which was simulated until end; if that is 0, until the last record. faults
// are the faults of the run in the order of time; faults after the end do not count. The Tally must not be used
// afterwards.
func (t *Tally) Figures(end time.Duration, faults []Fault) *Figures {
	end = max(end, t.now)
	t.until(end)
	f := &Figures{
		Jobs: t.jobs, End: seconds(end), Use: t.bins.use(end-t.begin, t.cluster),
		Again: t.again, Remote: t.away.figures(), Gangs: t.racks.figures(),
		Curve: t.curve.points(), Series: t.bins.series(end, t.cluster),
	}
	f.Gangs.Hops = round(over(float64(t.away.ring.hops), float64(t.away.ring.members)))
	if f.Jobs.Finished > 0 {
		f.Makespan = seconds(t.last - t.begin)
	}
	f.Jobs.Running, f.Jobs.Waiting = int(t.level[running]), int(t.level[waiting])
	var delays []float64
	for j := range t.load.Jobs {
		submit := t.load.Jobs[j].Submit
		for e := int(t.parts.first[j]); e < int(t.parts.first[j+1]); e++ {
			switch l := &t.lives[e]; {
			case l.begun:
				delays = append(delays, (l.started - submit).Seconds())
			case l.phase == queued:
				f.Jobs.Never++
				f.Jobs.Oldest = max(f.Jobs.Oldest, seconds(end-submit))
			}
		}
	}
	f.Delay = spreadOf(delays)
	t.group(f)
	t.losses(f, faults)
	return f
}

// group fills in what is known of all jobs, by class, size and user.
func (t *Tally) group(f *Figures) {
	jobs := t.load.Jobs
	all := t.groups(func(int) string { return "" })
	if len(all) > 0 {
		f.Wait, f.Completion, f.Slowdown = all[0].Wait, all[0].Completion, all[0].Slowdown
	}
	f.Classes = named(t.groups(func(j int) string { return jobs[j].Class }))
	slices.SortFunc(f.Classes, func(a, b Group) int { return cmp.Compare(a.Name, b.Name) })
	order := map[string]int64{}
	f.Sizes = t.groups(func(j int) string {
		asked := milliOf(&jobs[j].Spec)
		name, rank := sizeName(asked)
		order[name] = rank
		return name
	})
	slices.SortFunc(f.Sizes, func(a, b Group) int { return cmp.Compare(order[a.Name], order[b.Name]) })
	users := t.groups(func(j int) string { return jobs[j].User })
	f.UserCount, f.Fairness = len(users), 1
	var slow []float64
	for _, u := range users {
		if u.Slowdown.N > 0 {
			slow = append(slow, u.Slowdown.Mean)
		}
	}
	f.Fairness = round(jain(slow))
	slices.SortFunc(users, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.GPUSeconds, a.GPUSeconds), cmp.Compare(a.Name, b.Name))
	})
	f.Users = named(users[:min(len(users), MaxUsers)])
}

// named returns no groups if there is only one, without a name.
func named(g []Group) []Group {
	if len(g) == 1 && g[0].Name == "" {
		return nil
	}
	return g
}

// sizeName returns the name of the class of a size, and its rank. Each class is up to twice as large as the one before
// it.
func sizeName(asked int64) (string, int64) {
	switch {
	case asked == 0:
		return "no GPU", 0
	case asked < milli:
		return "part of a GPU", 1
	case asked <= milli:
		return "1 GPU", 2
	}
	n := uint64((asked + milli - 1) / milli)
	to := uint64(1) << bits.Len64(n-1)
	if to == 2 {
		return "2 GPUs", 3
	}
	return fmt.Sprintf("%d-%d GPUs", to/2+1, to), int64(to)
}

// groups groups the submitted jobs by the name that key gives for the index of a job, in the order of first appearance.
func (t *Tally) groups(key func(job int) string) []Group {
	type values struct{ wait, completion, slowdown []float64 }
	var out []Group
	var all []values
	index := map[string]int{}
	for j := range t.load.Jobs[:t.next] {
		in := &t.load.Jobs[j]
		name := key(j)
		g, known := index[name]
		if !known {
			g = len(out)
			index[name] = g
			out, all = append(out, Group{Name: name}), append(all, values{})
		}
		v, asked := &all[g], float64(milliOf(&in.Spec))/milli
		out[g].Jobs += t.parts.of(j)
		for e := int(t.parts.first[j]); e < int(t.parts.first[j+1]); e++ {
			l := &t.lives[e]
			ran := l.ran
			if l.phase == active {
				ran += t.now - l.since
			}
			out[g].GPUSeconds += ran.Seconds() * asked
			if l.phase != finished {
				continue
			}
			took := l.end - in.Submit
			v.wait = append(v.wait, (took - in.Runs).Seconds())
			v.completion = append(v.completion, took.Seconds())
			v.slowdown = append(v.slowdown, max(1, took.Seconds()/max(in.Runs, short).Seconds()))
		}
	}
	for g := range out {
		v := &all[g]
		out[g].GPUSeconds = round(out[g].GPUSeconds)
		out[g].Wait, out[g].Completion, out[g].Slowdown = spreadOf(v.wait), spreadOf(v.completion), spreadOf(v.slowdown)
	}
	return out
}

// losses fills in what faults did.
func (t *Tally) losses(f *Figures, faults []Fault) {
	for len(faults) > 0 && faults[len(faults)-1].At > t.now { // after the end
		faults = faults[:len(faults)-1]
	}
	for _, x := range faults {
		f.Faults = append(f.Faults, FaultCost{At: seconds(x.At), Until: seconds(x.Until), Kind: x.Kind, What: x.What, Machines: len(x.Machines)})
	}
	hit := newCauses(faults)
	var recovery []float64
	for _, x := range t.lost {
		back := (x.until - x.at).Seconds()
		if x.until > 0 {
			recovery = append(recovery, back)
		}
		i, known := hit.of(x)
		if !known {
			continue
		}
		c := &f.Faults[i]
		c.Hit++
		c.Lost = round(c.Lost + x.gpu)
		if x.until > 0 {
			c.Again++
			c.Recovery = max(c.Recovery, round(back))
		}
	}
	f.Again.LostGPU = round(f.Again.LostGPU)
	f.Again.Recovery = spreadOf(recovery)
}

// causes finds the fault that ended a run.
type causes struct {
	faults []Fault
	hit    map[int32][]int // by machine: its faults, in the order of time
}

func newCauses(faults []Fault) causes {
	c := causes{faults, map[int32][]int{}}
	for i, x := range faults {
		for _, m := range x.Machines {
			c.hit[int32(m)] = append(c.hit[int32(m)], i)
		}
	}
	return c
}

// of returns the latest fault that had hit a machine of the lost run by its end.
func (c causes) of(x loss) (int, bool) {
	cause := -1
	for _, m := range x.machines {
		for _, i := range c.hit[m] {
			if c.faults[i].At <= x.at {
				cause = max(cause, i)
			}
		}
	}
	return cause, cause >= 0
}
