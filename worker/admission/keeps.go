package admission

// Keeps: what is kept for offers that do not fit now, and which later offers may have it meanwhile.
// See docs/adr, ADR 91 and ADR 167.

import (
	"slices"
	"strconv"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// keeps is what one pass over the queue keeps for offers that do not fit. backfill decides for which offers, and for how
// long.
type keeps struct {
	now      leaseclock.Moment
	capacity *resources.Capacity
	running  func() []Release          // what is held here
	devices  map[string]gpu.Device     // of this host, by UUID
	all      []*keep                   // by the rank of their offers
	misfits  map[attemptedFit]struct{} // no devices were found for these; later in the pass even less is free
	held     uint64                    // the keeps whose devices are held in the pool; bit i is all[i]
	behind   uint64                    // keeps of offers that rank after the one being decided; it may take what they keep
	whole    map[uint64]int            // how many devices are wholly free while these keeps are held; known only for some
	noGPUs   bool                      // no part of any device is free
	tries    int                       // how often the held devices may still be changed for an offer
	releases []Release                 // of the attempts, the earliest first; nil: not computed
	alone    leaseclock.BootTime       // when the attempt releases the host that has it for itself
}

// keep is what is kept for one offer.
type keep struct {
	offer    *Offer
	need     job.Resources       // its CPUs and memory are what is kept of them
	at, end  leaseclock.BootTime // from when until when; a turn of setting aside begins now
	booked   bool
	promised bool // tasks are promised to the offer
	strict   bool // it is kept from offers of a lower priority only
	devices  []string
	keys     []string // under which the pool holds the part of the devices that is free now
	// What is left beside this keep at its time. An offer whose task still runs then must not need more.
	spareCPUs   int
	spareMemory job.Size
}

// attemptedFit is a need, and the keeps that it had to leave alone.
type attemptedFit struct {
	need job.Resources
	held uint64
}

func newKeeps(now leaseclock.Moment, c *resources.Capacity, devices []gpu.Device, running func() []Release) *keeps {
	k := &keeps{
		now: now, capacity: c, running: running, tries: maxSwitches,
		whole: map[uint64]int{}, misfits: map[attemptedFit]struct{}{}, devices: make(map[string]gpu.Device, len(devices)),
	}
	for _, d := range devices {
		k.devices[d.UUID] = d
	}
	k.noGPUs = len(c.Pool().Free()) == 0
	return k
}

// everything returns the set of all keeps.
func (k *keeps) everything() uint64 { return 1<<len(k.all) - 1 }

// fits reports whether an offer fits now and delays no offer for which something is kept. It returns the devices for it.
func (k *keeps) fits(o *Offer) ([]string, bool) {
	need := o.Msg.Need
	if !k.capacity.Enough(need) {
		return nil, false
	}
	outlasted, ok := k.outlasted(o)
	switch {
	case !ok || need.Exclusive && outlasted != 0:
		return nil, false
	case gpu.Count(need) == 0 && !need.Exclusive:
		return k.capacity.Choose(need, o.Msg.Device)
	case gpu.Count(need) > 0 && k.noGPUs:
		return nil, false
	}
	if k.held != outlasted && k.tries == 0 {
		outlasted = k.everything()
	}
	if n, known := k.whole[outlasted]; known && need.GPUs > n {
		return nil, false
	}
	if _, misfit := k.misfits[attemptedFit{need, outlasted}]; misfit {
		return nil, false
	}
	if k.held != outlasted {
		k.tries = max(0, k.tries-1)
		k.hold(outlasted)
	}
	if k.countWhole(); need.GPUs > k.whole[outlasted] {
		return nil, false
	}
	devices, ok := k.capacity.Choose(need, o.Msg.Device)
	if !ok {
		k.misfits[attemptedFit{need, outlasted}] = struct{}{}
	}
	return devices, ok
}

// countWhole counts the devices that are wholly free now.
func (k *keeps) countWhole() {
	if _, known := k.whole[k.held]; known {
		return
	}
	n := 0
	for _, f := range k.capacity.Pool().Free() {
		if f.Milli == gpu.Whole {
			n++
		}
	}
	k.whole[k.held] = n
}

// outlasted returns the keeps whose time would come before the offer's task has ended. It returns false if CPUs or memory
// would then be missing.
func (k *keeps) outlasted(o *Offer) (which uint64, ok bool) { return k.outlastedBy(o, false) }

// outlastedBy does the same. With preempts, tasks are to end for the offer. Then it may use the CPUs and memory of keeps
// for which tasks end already, because these get what their own tasks give back.
func (k *keeps) outlastedBy(o *Offer, preempts bool) (which uint64, ok bool) {
	until, need := lastsUntil(k.now.Boot, o.Msg.Limit), &o.Msg.Need
	for i, x := range k.all {
		if x.at >= until {
			continue
		}
		short := need.CPUs > max(0, x.spareCPUs) || need.Memory > max(0, x.spareMemory)
		if x.need.Exclusive || short && (!preempts || !x.offer.makesRoom()) {
			return 0, false
		}
		which |= 1 << i
	}
	return which, true
}

// took subtracts what an offer got from what the keeps leave spare.
func (k *keeps) took(o *Offer) {
	until, need := lastsUntil(k.now.Boot, o.Msg.Limit), k.capacity.Whole(o.Msg.Need)
	for _, x := range k.all {
		if x.at < until {
			x.spareCPUs -= need.CPUs
			x.spareMemory -= need.Memory
		}
	}
	k.releases = nil
	clear(k.whole)
}

// hold makes the pool hold the devices of these keeps, as far as they are free, and those of no other keeps.
func (k *keeps) hold(which uint64) {
	if k.held == which {
		return
	}
	less := k.held&^which != 0
	for i, x := range k.all {
		if k.held&^which&(1<<i) != 0 {
			k.letGo(x)
		}
	}
	for i, x := range k.all {
		if bit := uint64(1) << i; which&bit != 0 && (less || k.held&bit == 0) { // one that is held may share devices with one that was
			k.holdDevices(i, x)
		}
	}
	k.held = which
}

func (k *keeps) letGo(x *keep) {
	for _, key := range x.keys {
		k.capacity.Pool().Release(key)
	}
	x.keys = x.keys[:0]
}

func (k *keeps) holdDevices(i int, x *keep) {
	if len(x.devices) == 0 {
		return
	}
	for _, f := range k.capacity.Pool().Free() {
		n := slices.Index(x.devices, f.UUID)
		if n < 0 {
			continue
		}
		key := "kept/" + strconv.Itoa(i) + "/" + strconv.Itoa(n) // no attempt has such a name
		milli, memory := f.Milli, f.Memory
		if !x.need.Exclusive {
			milli, memory = min(milli, gpu.Milli(x.need)), min(memory, max(1, gpu.Memory(x.need, k.devices[f.UUID].Memory)))
		}
		if k.capacity.Pool().Hold(key, []string{f.UUID}, milli, memory) == nil {
			x.keys = append(x.keys, key)
		}
	}
}

// add adds a keep. It subtracts its CPUs and memory from what is spare at the keeps that begin during its time.
func (k *keeps) add(x *keep) {
	for _, y := range k.all {
		if x.at <= y.at && y.at < x.end {
			y.spareCPUs -= x.need.CPUs
			y.spareMemory -= x.need.Memory
		}
	}
	k.all = append(k.all, x)
}

// exclusive returns the first attempt for which the whole host is kept; zero if there is none.
func (k *keeps) exclusive() job.Attempt {
	for _, x := range k.all {
		if x.need.Exclusive {
			return x.offer.Msg.Attempt
		}
	}
	return job.Attempt{}
}

// revocable returns the keeps that an offer must leave alone if reservations are revoked for it: those whose time would
// come before its task has ended. It returns false if one of them, or the offer, is for the whole host.
func (k *keeps) revocable(o *Offer) (which uint64, ok bool) {
	until := lastsUntil(k.now.Boot, o.Msg.Limit)
	for i, x := range k.all {
		if x.at >= until {
			continue
		}
		if x.need.Exclusive || o.Msg.Need.Exclusive {
			return 0, false
		}
		which |= 1 << i
	}
	if k.held != which && k.tries == 0 {
		which = k.everything()
	}
	return which, true
}

// gained notes that something was given back in this pass.
func (k *keeps) gained() {
	k.releases, k.noGPUs = nil, false
	clear(k.whole)
	clear(k.misfits)
}

// aside calls a function while what is free of these keeps counts as used.
func (k *keeps) aside(which uint64, do func()) {
	if k.held != which {
		k.tries = max(0, k.tries-1)
	}
	k.hold(which)
	cpus, memory := 0, job.Size(0)
	freeCPUs, freeMemory := k.capacity.Spare()
	for i, x := range k.all {
		if which&(1<<i) == 0 {
			continue
		}
		cpus += min(x.need.CPUs, max(0, freeCPUs-cpus))
		memory += min(x.need.Memory, max(0, freeMemory-memory))
	}
	k.capacity.Aside(cpus, memory, do)
}

// devicesOf returns the devices of these keeps.
func (k *keeps) devicesOf(which uint64) (out []string) {
	for i, x := range k.all {
		if which&(1<<i) != 0 {
			out = append(out, x.devices...)
		}
	}
	return out
}
