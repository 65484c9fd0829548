//go:build cgo && !nonvml

package nvml

// The values of a card that are useful but not required. If a value cannot be read now, that of the last list is kept.

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
)

// before returns a card as it was last listed; nil if it was not listed.
func (c *collector) before(uuid string) *card {
	for _, u := range c.units {
		if u.card.device.UUID == uuid {
			return u.card
		}
	}
	return nil
}

// told reports whether the library has answered: with a value, or that the card has none.
func told(ret nvml.Return) bool { return ret == nvml.SUCCESS || slices.Contains(absent, ret) }

// describe reads those values of a card without which it can still be listed.
func (c *collector) describe(handle nvml.Device, d *gpu.Device) {
	before := gpu.Device{NUMA: -1}
	if was := c.before(d.UUID); was != nil {
		before = was.device
	}
	if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		d.Compute = fmt.Sprintf("%d.%d", major, minor)
	} else if !told(ret) {
		d.Compute = before.Compute
	}
	if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		d.PCI = busID(pci)
	} else if !told(ret) {
		d.PCI = before.PCI
	}
	var ret nvml.Return
	if d.NUMA, ret = c.numa(handle); !told(ret) {
		d.NUMA = before.NUMA
	}
	if d.Socket, ret = c.socket(handle); !told(ret) {
		d.Socket = before.Socket
	}
}

// busID returns the PCI address in lower case.
func busID(pci nvml.PciInfo) string {
	var b strings.Builder
	for _, c := range pci.BusId {
		if c <= 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return strings.ToLower(b.String())
}

// numaWords bounds the NUMA nodes to 64 per word.
const numaWords = 8

// near returns the NUMA nodes that are nearest to a card, or that are on its socket.
func (l *library) near(handle nvml.Device, scope nvml.AffinityScope) ([]int, nvml.Return) {
	if !l.has("nvmlDeviceGetMemoryAffinity") {
		return nil, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	set, ret := handle.GetMemoryAffinity(numaWords*8, scope) // the library's binding counts in bytes
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var nodes []int
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			nodes = append(nodes, i*bits.UintSize+bits.TrailingZeros(word))
		}
	}
	return nodes, ret
}

// numa returns the NUMA node of the card; -1 if there is none or more than one.
func (l *library) numa(handle nvml.Device) (int, nvml.Return) {
	nodes, ret := l.near(handle, nvml.AFFINITY_SCOPE_NODE)
	if len(nodes) != 1 {
		return -1, ret
	}
	return nodes[0], ret
}

// socket returns a number that is the same for all cards of a processor socket; 0: it is not known. It is one more than
// the first NUMA node of the socket.
func (l *library) socket(handle nvml.Device) (int, nvml.Return) {
	nodes, ret := l.near(handle, nvml.AFFINITY_SCOPE_SOCKET)
	if len(nodes) == 0 {
		return 0, ret
	}
	return nodes[0] + 1, ret
}
