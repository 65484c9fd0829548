package admission

// Backfill chooses the offers for which something is kept: by a booking if the start can be predicted, else in turns. It
// always keeps something for offers for which tasks end.
// See docs/adr, ADR 91, ADR 167 and ADR 168.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// backfill chooses the offers of a pass for which something is kept: the first offer of each need, at most maxKeeps of
// them, and the offers for which tasks end.
//
// If the time limits of the running tasks show when the offer will fit, it is booked for that time, with certain devices.
// A later offer may start before it if it ends by then, or if it leaves free what the booking needs (EASY backfill).
// Otherwise what is free is set aside in turns, for the first such offer: in one turn later offers of its priority may
// have it, in the next turn they get none of it. See block. Offers of a lower priority get none of it in any turn. See
// descend. Nothing is kept for an offer that another host has booked. See foresee.
type backfill struct {
	*keeps
	pace     *Pace
	most     time.Duration // how long the first turn of an offer lasts at most
	shared   []*Offer      // offers for which nothing is set aside in this turn
	open     []open        // offers for which nothing is kept from others of their priority, in the order of the pass
	needs    map[job.Resources]struct{}
	unbooked map[job.Resources]struct{} // needs of Spare offers that could not be booked
	turned   bool                       // an offer without a booking has turns, and they are not in vain yet
	next     leaseclock.BootTime        // when the next turn ends; never if there is none
	foreseen []forecast                 // of offers that other hosts have booked
	foretold map[job.Resources]struct{} // their needs
}

func newBackfill(k *keeps, p *Pace, most time.Duration) *backfill {
	return &backfill{
		keeps: k, pace: p, most: most, next: Never,
		needs: map[job.Resources]struct{}{}, unbooked: map[job.Resources]struct{}{}, foretold: map[job.Resources]struct{}{},
	}
}

// wants reports whether something would be kept for an offer: it is the first with its need, and something is kept for
// fewer than maxKeeps offers. An offer for which tasks end needs only one of maxKeeps+maxPromised places.
func (k *backfill) wants(o *Offer) bool {
	if o.makesRoom() {
		return len(k.all) < maxKeeps+maxPromised
	}
	if len(k.all) >= maxKeeps || len(k.needs) >= maxNeeds {
		return false
	}
	_, known := k.needs[o.Msg.Need]
	_, vain := k.unbooked[o.Msg.Need]
	return !known && (!vain || !o.Msg.Spare)
}

// block keeps for an offer what it needs. It returns false if nothing is kept for it: it cannot be booked, and its
// scheduler wants nothing set aside for it on this host.
//
// Of the offers without a booking only the first has turns. If these were in vain for long, the next one has turns too,
// because the first may never start. The first turn is for others. An offer for which tasks end skips it. So does an
// offer of a gang, because gangs withdraw their offers after a while and offer again.
func (k *backfill) block(o *Offer) bool {
	if o.Conditional {
		k.needs[o.Msg.Need] = struct{}{}
		o.booked = booking{}
		k.add(k.promise(o))
		return true
	}
	if x := k.book(o); x != nil {
		k.needs[o.Msg.Need] = struct{}{}
		o.booked = booking{at: x.at, devices: x.devices}
		k.add(x)
		return true
	}
	o.booked = booking{}
	if o.Msg.Spare && !o.makesRoom() {
		k.unbooked[o.Msg.Need] = struct{}{}
		return false
	}
	k.needs[o.Msg.Need] = struct{}{}
	k.setTurns(o)
	return true
}

// setTurns keeps what is free for an offer without a booking, if the offer has turns and the present turn is one that
// keeps.
func (k *backfill) setTurns(o *Offer) {
	if k.turned && !o.makesRoom() {
		k.wait(o)
		return // turns for a further offer would make more idle, and no offer would start sooner
	}
	if o.turns.since == 0 {
		o.turns = rota{since: k.now.Boot, first: k.pace.Turn(k.most)}
		if o.makesRoom() || o.Msg.Gang > 0 {
			o.turns.since = o.turns.since.Add(-o.turns.first)
		}
	}
	k.turned = k.turned || !o.turns.exhausted(k.now.Boot)
	kept, until := o.turns.at(k.now.Boot)
	k.next = min(k.next, until)
	if !kept {
		k.shared = append(k.shared, o)
		k.wait(o)
		return
	}
	k.add(k.setAside(o, until))
}

// wait notes an offer for which nothing is kept from others of its priority.
func (k *backfill) wait(o *Offer) {
	if len(k.open) < maxKeeps && (!o.Msg.Spare || o.makesRoom()) && k.capacity.Pool().Sound(o.Msg.Need) {
		k.open = append(k.open, open{o, len(k.all)})
	}
}

// open is an offer for which nothing is kept from others of its priority.
type open struct {
	offer *Offer
	keeps int // number of keeps when the offer was decided
}

// descend is called before the pass decides an offer of this priority. For each open offer of a higher priority it makes
// a booking, or, if it cannot, keeps what is free of its need. So an offer of a lower priority starts only if it ends
// before the booking, or leaves free what is kept. Something is kept for at most maxKeeps offers, the first ones.
func (k *backfill) descend(priority int) {
	for len(k.open) > 0 && k.open[0].offer.Msg.Priority > priority {
		o := k.open[0]
		if k.open = k.open[1:]; len(k.all) >= maxKeeps {
			continue
		}
		for i, x := range k.all[o.keeps:] {
			if !x.strict {
				k.behind |= 1 << (o.keeps + i)
			}
		}
		x := k.book(o.offer)
		if x == nil {
			x = k.setAside(o.offer, Never)
		}
		k.behind, x.strict = 0, true
		k.add(x)
	}
}

// promise keeps what is free of the need of an offer with a conditional Commit, without turns and without an end: the
// promised tasks may be told to end at any moment, whatever their time limits are. The devices that they hold are kept
// too once the tasks have ended.
func (k *keeps) promise(o *Offer) *keep {
	x := k.setAside(o, Never)
	x.promised = true
	for _, v := range o.Promised {
		for _, d := range v.Devices {
			if !slices.Contains(x.devices, d) {
				x.devices = append(x.devices, d)
			}
		}
	}
	return x
}

// setAside returns a keep with as much of the offer's need as is free now.
func (k *keeps) setAside(o *Offer, until leaseclock.BootTime) *keep {
	k.hold(k.everything() &^ k.behind)
	x := &keep{offer: o, need: k.capacity.Whole(o.Msg.Need), at: k.now.Boot, end: until}
	cpus, memory := k.capacity.Spare()
	for i, y := range k.all {
		if k.behind&(1<<i) == 0 && y.at <= k.now.Boot {
			cpus -= y.need.CPUs
			memory -= y.need.Memory
		}
	}
	x.need.CPUs, x.need.Memory = min(x.need.CPUs, max(0, cpus)), min(x.need.Memory, max(0, memory))
	x.spareCPUs, x.spareMemory = cpus-x.need.CPUs, memory-x.need.Memory
	if gpu.Count(o.Msg.Need) == 0 && !o.Msg.Need.Exclusive {
		return x
	}
	free := k.capacity.Pool().Free()
	if !o.Msg.Need.Exclusive {
		free = slices.DeleteFunc(free, func(f gpu.Free) bool { return !gpu.Fits(k.devices[f.UUID], o.Msg.Need) })
		slices.SortStableFunc(free, func(a, b gpu.Free) int { return cmp.Compare(b.Milli, a.Milli) })
		free = free[:min(len(free), gpu.Count(o.Msg.Need))]
	}
	for _, f := range free {
		x.devices = append(x.devices, f.UUID)
	}
	return x
}

// forecasts returns what is known of the start of the offers for which something is kept, or would be in their next turn.
func (k *backfill) forecasts() []forecast {
	out := make([]forecast, 0, len(k.all)+len(k.shared))
	for _, x := range k.all {
		switch {
		case x.strict: // its forecast comes from its turns, or it has none
		case x.promised: // when it starts depends on other hosts
		case x.booked:
			out = append(out, forecast{offer: x.offer, kind: startsBy, at: x.at})
		default:
			out = append(out, forecast{offer: x.offer, kind: keptAside, at: x.end})
		}
	}
	for _, o := range k.shared {
		_, until := o.turns.at(k.now.Boot)
		out = append(out, forecast{offer: o, kind: sharedOut, at: until})
	}
	return append(out, k.foreseen...)
}

// elsewhere reports whether nothing is to be kept for an offer because another host has booked it. That does not hold for
// an offer for which tasks end.
func (o *Offer) elsewhere() bool { return o.Msg.Elsewhere && !o.makesRoom() }

// foresee computes when an offer for which nothing is kept here would start if nothing else began. So its scheduler
// learns if this host has become the better one. Only the first offer of each need gets such a forecast, and only if
// nothing is kept for an offer with the same need.
func (k *backfill) foresee(o *Offer) {
	_, kept := k.needs[o.Msg.Need]
	_, told := k.foretold[o.Msg.Need]
	if kept || told || len(k.foretold) >= maxKeeps {
		return
	}
	k.foretold[o.Msg.Need] = struct{}{}
	o.booked = booking{}
	if x := k.book(o); x != nil {
		o.booked = booking{at: x.at, devices: x.devices}
		k.foreseen = append(k.foreseen, forecast{offer: o, kind: startsBy, at: x.at, elsewhere: true})
	}
}

// kept returns what is kept of the free resources. Of CPUs and memory that is what a task without a time limit may not
// have.
func (k *backfill) kept() (out []keptFor) {
	if k.hold(0); len(k.all) == 0 {
		return nil
	}
	free := k.capacity.Pool().Free()
	cpus, memory := k.capacity.Spare()
	cpus, memory = max(0, cpus), max(0, memory)
	for _, x := range k.all {
		f := keptFor{offer: x.offer, below: x.strict, until: x.at, starts: x.booked, milli: gpu.Milli(x.need)}
		if !x.booked {
			f.until = x.end
		}
		if f.cpus, f.memory = max(0, cpus-max(0, x.spareCPUs)), max(0, memory-max(0, x.spareMemory)); x.need.Exclusive {
			f.cpus, f.memory, f.milli = cpus, memory, gpu.Whole
		}
		for _, d := range free {
			if slices.Contains(x.devices, d.UUID) || x.need.Exclusive {
				f.held = append(f.held, d.UUID)
			}
		}
		if !slices.ContainsFunc(out, f.within) && (f.cpus > 0 || f.memory > 0 || len(f.held) > 0) {
			out = append(out, f)
		}
	}
	return out
}

// within reports whether f is part of what is kept for an earlier offer, and is kept from no other tasks.
func (f *keptFor) within(before keptFor) bool {
	return f.cpus <= before.cpus && f.memory <= before.memory && f.milli <= before.milli && (!before.starts || f.starts && before.until <= f.until) &&
		!slices.ContainsFunc(f.held, func(d string) bool { return !slices.Contains(before.held, d) })
}
