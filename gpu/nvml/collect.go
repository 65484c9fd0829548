//go:build cgo && !nonvml

package nvml

// Conversion of the library's data to gpu.Device and gpu.Status. A feature that a device lacks gives zero, not an
// error.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvidia"
	"github.com/musterhq/muster/job"
)

// collector reads the devices. Only one goroutine may use it.
type collector struct {
	library
	kernel  *nvidia.Kernel
	version string   // of the driver; empty: not known
	units   []unit   // as last listed
	skip    []int    // cards that are not to be touched, by index
	at      func(at) // called with the card to which the collector turns; may be nil
	events  events
}

// library is the installed library.
type library struct {
	lib     nvml.Interface
	symbols map[string]bool // whether it has each symbol that was looked up
}

// turn announces the card to which the collector turns. It returns false if the card is not to be touched.
func (c *collector) turn(to at) bool {
	if slices.Contains(c.skip, to.Card) {
		return false
	}
	if c.at != nil {
		c.at(to)
	}
	return true
}

// card is a physical GPU of the host, whole or split.
type card struct {
	handle   nvml.Device
	device   gpu.Device
	minor    int            // of its device file; -1: not known
	switches int            // active NVLinks to a switch
	peers    map[string]int // active NVLinks to other cards, by PCI bus ID
}

// unit is what a task can get: a card that is not split, or a MIG instance.
type unit struct {
	handle nvml.Device
	card   *card
	device gpu.Device
}

// has reports whether the installed library has the symbol. A call of a missing symbol ends the process.
func (l *library) has(symbol string) bool {
	known, looked := l.symbols[symbol]
	if !looked {
		known = l.lib.Extensions().LookupSymbol(symbol) == nil
		l.symbols[symbol] = known
	}
	return known
}

// list finds all devices. notes name those that cannot be listed.
func (c *collector) list() (devices []gpu.Device, notes []string, err error) {
	n, ret := c.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, nil, fmt.Errorf("count the GPUs: %w", ret)
	}
	if version, ret := c.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		c.version = version
	}
	var units []unit
	for i := range n {
		if !c.turn(at{Card: i, Wake: true}) {
			notes = append(notes, fmt.Sprintf("GPU %d: does not answer", i))
			continue
		}
		more, err := c.readUnits(i)
		if err != nil {
			notes = append(notes, err.Error())
			more = c.known(i)
		}
		units = append(units, more...)
	}
	if len(units) == 0 && len(notes) > 0 {
		return nil, nil, fmt.Errorf("no GPU can be listed: %s", strings.Join(notes, "; "))
	}
	c.link(units)
	c.units = units
	c.watchEvents()
	devices = make([]gpu.Device, len(units))
	for i, u := range units {
		devices[i] = u.device
	}
	return devices, notes, nil
}

// readUnits reads a card, and returns it or its MIG instances.
func (c *collector) readUnits(index int) ([]unit, error) {
	crd, err := c.readCard(index)
	if err != nil {
		return nil, err
	}
	units, err := c.split(crd)
	if err != nil {
		return nil, fmt.Errorf("GPU %d (%s): %w", index, crd.device.UUID, err)
	}
	return units, nil
}

// known returns the units of a card that were listed before. While a card is lost, its status says so.
func (c *collector) known(index int) []unit {
	return slices.DeleteFunc(slices.Clone(c.units), func(u unit) bool { return u.device.Index != index })
}

func (c *collector) readCard(index int) (*card, error) {
	handle, ret := c.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("GPU %d: %w", index, ret)
	}
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS || uuid == "" {
		return nil, fmt.Errorf("GPU %d: its UUID: %w", index, ret)
	}
	d := gpu.Device{UUID: uuid, Index: index, Driver: c.version}
	if d.Model, ret = handle.GetName(); ret != nvml.SUCCESS || d.Model == "" {
		return nil, fmt.Errorf("GPU %d (%s): its name: %w", index, uuid, ret)
	}
	total, _, ret := c.memory(handle)
	if ret != nvml.SUCCESS && !slices.Contains(absent, ret) {
		return nil, fmt.Errorf("GPU %d (%s): its memory: %w", index, uuid, ret)
	}
	d.Memory = total // 0 for a card that uses the memory of the host, and for some that are split
	d.Class = gpu.Class(d.Model, d.Memory)
	minor, ret := handle.GetMinorNumber()
	switch {
	case ret == nvml.SUCCESS:
		d.Nodes = c.kernel.Nodes(minor)
	case slices.Contains(absent, ret):
		minor = -1
	default: // its tasks could then open every GPU
		return nil, fmt.Errorf("GPU %d (%s): its device file: %w", index, uuid, ret)
	}
	c.describe(handle, &d)
	return &card{handle: handle, device: d, minor: minor}, nil
}

// memory returns the total and the used memory. The newer call does not count the driver's own memory as used.
func (l *library) memory(handle nvml.Device) (total, used job.Size, ret nvml.Return) {
	if l.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, newer := handle.GetMemoryInfo_v2(); !slices.Contains(absent, newer) {
			return size(m.Total), size(m.Used), newer
		}
	}
	m, ret := handle.GetMemoryInfo()
	return size(m.Total), size(m.Used), ret
}

// size converts a number of bytes; the library's mark for "not available" becomes 0.
func size(bytes uint64) job.Size {
	if bytes > math.MaxInt64 {
		return 0
	}
	return job.Size(bytes)
}
