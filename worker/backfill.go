package worker

// Backfill: for which offers something is kept: with a booking if there can be one, else in turns; and for those
// for which tasks end.
// See docs/adr, ADR 91 and ADR 167.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/gpu"
)

// wants reports whether something would be kept for an offer: it is the first with its need, and not too many are. What
// tasks end for is kept in any case.
func (k *keeps) wants(o *offer) bool {
	if o.makesRoom() {
		return len(k.all) < maxKeeps+maxPromised
	}
	if len(k.all) >= maxKeeps || len(k.needs) >= maxNeeds {
		return false
	}
	_, known := k.needs[o.msg.Need]
	_, vain := k.unbooked[o.msg.Need]
	return !known && (!vain || !o.msg.Spare)
}

// block keeps for an offer what it needs. It returns false if nothing is ever kept for it: nothing shows when it fits, and
// its scheduler has another host keep what is free, or none.
//
// Of the offers without a booking only the first has turns, until they were in vain
// for long; then the next one has them too, because the first may never start. The first turn is for others, except if
// tasks end for the offer, or if it is that of a gang: gangs take their offers back after a while, and offer anew.
func (k *keeps) block(o *offer) bool {
	if o.conditional {
		k.needs[o.msg.Need] = struct{}{}
		o.booked = booking{}
		k.add(k.promise(o))
		return true
	}
	if x := k.book(o); x != nil {
		k.needs[o.msg.Need] = struct{}{}
		o.booked = booking{at: x.at, devices: x.devices}
		k.add(x)
		return true
	}
	o.booked = booking{}
	if o.msg.Spare && !o.makesRoom() {
		k.unbooked[o.msg.Need] = struct{}{}
		return false
	}
	k.needs[o.msg.Need] = struct{}{}
	k.setTurns(o)
	return true
}

// setTurns keeps what is free for an offer without a booking if it has turns, and it is one in which that is kept.
func (k *keeps) setTurns(o *offer) {
	if k.turned && !o.makesRoom() {
		k.wait(o)
		return // for each further one more would be idle, and none would start sooner
	}
	if o.turns.since == 0 {
		o.turns = rota{since: k.now.Boot, first: k.pace.turn(k.most)}
		if o.makesRoom() || o.msg.Gang > 0 {
			o.turns.since = o.turns.since.Add(-o.turns.first)
		}
	}
	k.turned = k.turned || !o.turns.inVain(k.now.Boot)
	kept, until := o.turns.at(k.now.Boot)
	k.next = min(k.next, until)
	if !kept {
		k.shared = append(k.shared, o)
		k.wait(o)
		return
	}
	k.add(k.setAside(o, until))
}

// wait notes an offer for which nothing is kept from those of its priority.
func (k *keeps) wait(o *offer) {
	if len(k.open) < maxKeeps && (!o.msg.Spare || o.makesRoom()) && k.capacity.gpus.Sound(o.msg.Need) {
		k.open = append(k.open, o)
	}
}

// descend is called before the pass goes on with an offer of this priority. For those of higher priorities for which
// nothing is kept so far it keeps the time for which they can be booked, or else what is free of their need. So of a lower
// priority only those start that end before, or leave it. At most maxKeeps are kept for, the first ones.
func (k *keeps) descend(priority int) {
	for len(k.open) > 0 && k.open[0].msg.Priority > priority {
		o := k.open[0]
		if k.open = k.open[1:]; len(k.all) >= maxKeeps {
			continue
		}
		x := k.book(o)
		if x == nil {
			x = k.setAside(o, never)
		}
		x.strict = true
		k.add(x)
	}
}

// promise keeps for the offer of a conditional Commit what is free of its need, without turns and with no end: its tasks
// may be told to end at any moment, whatever their time limits are. What they hold is kept too once they have ended.
func (k *keeps) promise(o *offer) *keep {
	x := k.setAside(o, never)
	x.promised = true
	for _, a := range o.promised {
		for _, d := range a.rec.Devices {
			if !slices.Contains(x.devices, d) {
				x.devices = append(x.devices, d)
			}
		}
	}
	return x
}

// setAside keeps for an offer as much of its need as is free now.
func (k *keeps) setAside(o *offer, until BootTime) *keep {
	k.hold(k.everything())
	x := &keep{offer: o, need: k.capacity.whole(o.msg.Need), at: k.now.Boot, end: until}
	cpus, memory := k.capacity.cpus-k.capacity.usedCPUs, k.capacity.memory-k.capacity.usedMemory
	for _, y := range k.all {
		if y.at <= k.now.Boot {
			cpus -= y.need.CPUs
			memory -= y.need.Memory
		}
	}
	x.need.CPUs, x.need.Memory = min(x.need.CPUs, max(0, cpus)), min(x.need.Memory, max(0, memory))
	x.spareCPUs, x.spareMemory = cpus-x.need.CPUs, memory-x.need.Memory
	if gpu.Count(o.msg.Need) == 0 && !o.msg.Need.Exclusive {
		return x
	}
	free := k.capacity.gpus.Free()
	if !o.msg.Need.Exclusive {
		free = slices.DeleteFunc(free, func(f gpu.Free) bool { return !gpu.Fits(k.devices[f.UUID], o.msg.Need) })
		slices.SortStableFunc(free, func(a, b gpu.Free) int { return cmp.Compare(b.Milli, a.Milli) })
		free = free[:min(len(free), gpu.Count(o.msg.Need))]
	}
	for _, f := range free {
		x.devices = append(x.devices, f.UUID)
	}
	return x
}

// forecasts returns what is known of the start of the offers for which something is kept, or would be in their next turn.
func (k *keeps) forecasts() []forecast {
	out := make([]forecast, 0, len(k.all)+len(k.shared))
	for _, x := range k.all {
		switch {
		case x.strict: // it has one by its turns, or none
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
	return out
}
