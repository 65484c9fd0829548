package gpu

// Access to the contents of a Pool, for tests.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/job"
)

// Held is what one key holds of one device.
type Held struct {
	Key    string
	Milli  int
	Memory job.Size
}

// Of returns the devices that key holds, in the order in which they were given to Hold.
func (p *Pool) Of(key string) []string { return slices.Clone(p.holds[key].uuids) }

// Holders returns what is held of a device, by key.
func (p *Pool) Holders(uuid string) []Held {
	var all []Held
	for key, h := range p.holds {
		if i := slices.Index(h.uuids, uuid); i >= 0 {
			all = append(all, Held{Key: key, Milli: h.milli, Memory: h.memory[i]})
		}
	}
	slices.SortFunc(all, func(a, b Held) int { return cmp.Compare(a.Key, b.Key) })
	return all
}
