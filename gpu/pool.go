package gpu

// Pool: who holds what of the devices of this host.

import (
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
)

// The errors of a Pool. An error means that nothing was changed.
var (
	// ErrNoDevice means that the driver lists no such device. Choose another one.
	ErrNoDevice = errors.New("no such device")
	// ErrTaken means that others hold what was requested. Choose again.
	ErrTaken = errors.New("device is taken")
	// ErrHolds means that the key holds devices already. Release it first.
	ErrHolds = errors.New("holds devices already")
)

// ForeignLimit is how much memory of a device programs that muster did not start may use while the device still
// counts as free, such as an idle context or a screen. Beyond the limit this use counts as taken, in memory and in
// thousandths.
const ForeignLimit = job.Size(64 << 20)

// Pool records who holds the devices of one host. It is not safe for concurrent use.
type Pool struct {
	slots     []*slot
	index     map[string]int // UUID to slot
	holds     map[string]hold
	distances [][]int // distance between two slots, for sets
	near      [][]int // value of the link between two slots
}

// slot is the record of one device.
type slot struct {
	Device
	unlisted   bool     // held, but no longer listed by the driver
	quarantine string   // why it is given to nobody; empty: it is not in quarantine
	foreign    job.Size // memory used by programs that muster did not start
	milli      int      // held
	memory     job.Size // held
	holders    int
}

// hold is what one key holds.
type hold struct {
	uuids  []string
	milli  int
	memory []job.Size // by device
}

// Free is the free part of one device.
type Free struct {
	UUID   string
	Memory job.Size
	Milli  int
}

// NewPool returns a pool of these devices, all free.
func NewPool(devices []Device) (*Pool, error) {
	p := &Pool{index: map[string]int{}, holds: map[string]hold{}}
	if err := p.Update(devices); err != nil {
		return nil, err
	}
	return p, nil
}

// Update replaces the list of devices. A device that is in the new list keeps its holders and its state. A held
// device that is not in the list stays in the pool, but is given to nobody until it is listed again or released.
func (p *Pool) Update(devices []Device) error {
	slots := make([]*slot, 0, len(devices))
	index := make(map[string]int, len(devices))
	for _, d := range devices {
		if _, twice := index[d.UUID]; twice || d.UUID == "" {
			return fmt.Errorf("gpu: device %q is listed twice or has no UUID", d.UUID)
		}
		s := &slot{}
		if i, known := p.index[d.UUID]; known {
			*s = *p.slots[i]
		}
		s.Device, s.unlisted = d, false
		index[d.UUID] = len(slots)
		slots = append(slots, s)
	}
	for _, s := range p.slots {
		if _, listed := index[s.UUID]; !listed && s.holders > 0 {
			s.unlisted = true
			index[s.UUID] = len(slots)
			slots = append(slots, s)
		}
	}
	p.slots, p.index = slots, index
	p.learnLinks()
	return nil
}

// Devices returns the devices in the driver's order.
func (p *Pool) Devices() []Device {
	var all []Device
	for _, s := range p.slots {
		if !s.unlisted {
			all = append(all, s.Device)
		}
	}
	return all
}

// Len returns the number of devices of a pool.
func Len(p *Pool) (n int) {
	for _, s := range p.slots {
		if !s.unlisted {
			n++
		}
	}
	return n
}

// Free returns what is free, for devices that are not fully held.
func (p *Pool) Free() []Free {
	var all []Free
	for _, s := range p.slots {
		if milli, memory := s.left(); milli > 0 {
			all = append(all, Free{UUID: s.UUID, Memory: memory, Milli: milli})
		}
	}
	return all
}

// left returns what the device can still give.
func (s *slot) left() (milli int, memory job.Size) {
	if s.unlisted || s.quarantine != "" {
		return 0, 0
	}
	milli, memory = Whole-s.milli, s.Memory-s.memory
	if s.foreign > ForeignLimit && s.Memory > 0 {
		milli -= 1 + int(float64(s.foreign)/float64(s.Memory)*Whole)
		memory -= s.foreign
	}
	return max(0, milli), max(0, memory)
}

// Hold gives key the stated thousandths and memory of each of the devices, all or nothing. Whole takes all memory;
// for a share, memory 0 means the same share of the memory. Hold ignores quarantine and programs that muster did not
// start; Choose respects them.
func (p *Pool) Hold(key string, uuids []string, milli int, memory job.Size) error {
	return p.hold(key, uuids, milli, memory, false)
}

// Adopt is Hold for devices that were held before the daemon restarted. A device that the driver does not list is
// recorded as well, so that it is not given away when the driver lists it again.
func (p *Pool) Adopt(key string, uuids []string, milli int, memory job.Size) error {
	return p.hold(key, uuids, milli, memory, true)
}

func (p *Pool) hold(key string, uuids []string, milli int, memory job.Size, adopt bool) error {
	if _, holds := p.holds[key]; holds {
		return fmt.Errorf("gpu: %s: %w", key, ErrHolds)
	}
	if milli < 1 || milli > Whole || memory < 0 {
		return fmt.Errorf("gpu: hold %d thousandths and %s: out of range", milli, memory)
	}
	for i, u := range uuids {
		if slices.Contains(uuids[:i], u) {
			return fmt.Errorf("gpu: hold %s twice: %w", u, ErrTaken)
		}
		if err := p.canHold(u, milli, memory, adopt); err != nil {
			return err
		}
	}
	h := hold{uuids: slices.Clone(uuids), milli: milli, memory: make([]job.Size, len(uuids))}
	for i, u := range uuids {
		s := p.slotFor(u)
		h.memory[i] = memoryOf(milli, memory, s.Memory)
		s.milli += milli
		s.memory += h.memory[i]
		s.holders++
	}
	p.holds[key] = h
	return nil
}

func (p *Pool) canHold(uuid string, milli int, memory job.Size, adopt bool) error {
	i, known := p.index[uuid]
	if !known {
		if adopt && uuid != "" {
			return nil
		}
		return fmt.Errorf("gpu: hold %s: %w", uuid, ErrNoDevice)
	}
	s := p.slots[i]
	if s.unlisted && !adopt {
		return fmt.Errorf("gpu: hold %s: not listed by the driver: %w", uuid, ErrNoDevice)
	}
	if s.milli+milli > Whole {
		return fmt.Errorf("gpu: hold %d thousandths of %s: %d are held: %w", milli, uuid, s.milli, ErrTaken)
	}
	if want := memoryOf(milli, memory, s.Memory); !s.unlisted && s.memory+want > s.Memory {
		return fmt.Errorf("gpu: hold %s of %s: %s of %s are held: %w", want, uuid, s.memory, s.Memory, ErrTaken)
	}
	return nil
}

// slotFor returns the slot of a device, and adds one for an unlisted device.
func (p *Pool) slotFor(uuid string) *slot {
	if i, known := p.index[uuid]; known {
		return p.slots[i]
	}
	s := &slot{Device: Device{UUID: uuid}, unlisted: true}
	p.index[uuid] = len(p.slots)
	p.slots = append(p.slots, s)
	p.learnLinks()
	return s
}

// Release returns all that key holds. It is safe to repeat.
func (p *Pool) Release(key string) {
	h, ok := p.holds[key]
	if !ok {
		return
	}
	delete(p.holds, key)
	for i, u := range h.uuids {
		s := p.slots[p.index[u]]
		s.milli -= h.milli
		s.memory -= h.memory[i]
		s.holders--
	}
	p.dropUnlisted()
}

// dropUnlisted removes devices that are neither listed nor held.
func (p *Pool) dropUnlisted() {
	gone := func(s *slot) bool { return s.unlisted && s.holders == 0 }
	if !slices.ContainsFunc(p.slots, gone) {
		return
	}
	p.slots = slices.DeleteFunc(p.slots, gone)
	clear(p.index)
	for i, s := range p.slots {
		p.index[s.UUID] = i
	}
	p.learnLinks()
}

// Quarantine keeps a device from being chosen, for a reason. The UUID of a GPU that is split into MIG instances stands
// for all of them. Present holders keep the device.
func (p *Pool) Quarantine(uuid, reason string) {
	if reason == "" {
		reason = "in quarantine"
	}
	p.mark(uuid, reason)
}

// EndQuarantine allows a device to be chosen again.
func (p *Pool) EndQuarantine(uuid string) { p.mark(uuid, "") }

func (p *Pool) mark(uuid, reason string) {
	for _, s := range p.slots {
		if s.UUID == uuid || s.Parent == uuid && uuid != "" {
			s.quarantine = reason
		}
	}
}

// Quarantined returns why a device is in quarantine; empty if it is not.
func (p *Pool) Quarantined(uuid string) string {
	if i, known := p.index[uuid]; known {
		return p.slots[i].quarantine
	}
	return ""
}

// Sound reports whether the need would fit if nothing were held, on the devices that are neither in quarantine nor
// used by programs that muster did not start.
func (p *Pool) Sound(need job.Resources) bool {
	n := 0
	for _, s := range p.slots {
		if s.unlisted || s.quarantine != "" || !Fits(s.Device, need) {
			continue
		}
		if s.foreign > ForeignLimit { // rare
			idle := *s
			idle.milli, idle.memory = 0, 0
			if milli, memory := idle.left(); milli < Milli(need) || memory < Memory(need, s.Memory) {
				continue
			}
		}
		n++
	}
	return n >= Count(need)
}

// Idle returns the devices that are in quarantine and that nobody holds.
func (p *Pool) Idle() []string {
	var all []string
	for _, s := range p.slots {
		if s.quarantine != "" && s.holders == 0 && !s.unlisted {
			all = append(all, s.UUID)
		}
	}
	return all
}

// Held returns how much memory of a device its holders have.
func (p *Pool) Held(uuid string) job.Size {
	if i, known := p.index[uuid]; known {
		return p.slots[i].memory
	}
	return 0
}

// Foreign records how much memory of a device is used by programs that muster did not start. It reports whether the
// device can give more or less than before because of that.
func (p *Pool) Foreign(uuid string, bytes job.Size) (changed bool) {
	i, known := p.index[uuid]
	if !known {
		return false
	}
	s := p.slots[i]
	before := s.foreign
	s.foreign = max(0, bytes)
	return before != s.foreign && max(before, s.foreign) > ForeignLimit
}

// TakenByForeign returns how much memory of a device is used by programs that muster did not start. It is 0 if they use
// so little that the device still counts as free.
func TakenByForeign(p *Pool, uuid string) job.Size {
	if i, known := p.index[uuid]; known && p.slots[i].foreign > ForeignLimit {
		return p.slots[i].foreign
	}
	return 0
}
