//go:build cgo && !nonvml

package nvml

// Conversion of the library's data to gpu.Device and gpu.Status. A feature that a device lacks gives zero, not an
// error.

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// collector reads the devices. Only one goroutine may use it.
type collector struct {
	lib     nvml.Interface
	symbols map[string]bool // symbols of the installed library
	units   []unit          // as last listed
	skip    []int           // cards that are not to be touched, by index
	at      func(at)        // is told to which card the collector turns; nil: nobody is
	events  events
}

// turn says to which card the collector turns. It returns false if the card is not to be touched.
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
func (c *collector) has(symbol string) bool {
	known, looked := c.symbols[symbol]
	if !looked {
		known = c.lib.Extensions().LookupSymbol(symbol) == nil
		c.symbols[symbol] = known
	}
	return known
}

// list finds all devices. notes name those that cannot be listed.
func (c *collector) list() (devices []gpu.Device, notes []string, err error) {
	n, ret := c.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, nil, fmt.Errorf("count the GPUs: %w", ret)
	}
	version, _ := c.lib.SystemGetDriverVersion() // empty if unknown
	var units []unit
	for i := range n {
		if !c.turn(at{Card: i, Wake: true}) {
			notes = append(notes, fmt.Sprintf("GPU %d: does not answer", i))
			continue
		}
		crd, err := c.readCard(i, version)
		if err != nil {
			notes = append(notes, err.Error())
			units = append(units, c.known(i)...)
			continue
		}
		units = append(units, c.split(crd)...)
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

// known returns the units of a card that were listed before. While a card is lost, its status says so.
func (c *collector) known(index int) []unit {
	return slices.DeleteFunc(slices.Clone(c.units), func(u unit) bool { return u.device.Index != index })
}

func (c *collector) readCard(index int, version string) (*card, error) {
	handle, ret := c.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("GPU %d: %w", index, ret)
	}
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS || uuid == "" {
		return nil, fmt.Errorf("GPU %d: its UUID: %w", index, ret)
	}
	d := gpu.Device{UUID: uuid, Index: index, Driver: version, NUMA: c.numa(handle)}
	if d.Model, ret = handle.GetName(); ret != nvml.SUCCESS || d.Model == "" {
		return nil, fmt.Errorf("GPU %d (%s): its name: %w", index, uuid, ret)
	}
	total, _, ret := c.memory(handle)
	if ret != nvml.SUCCESS && !slices.Contains(absent, ret) {
		return nil, fmt.Errorf("GPU %d (%s): its memory: %w", index, uuid, ret)
	}
	d.Memory = total // 0 for a card that uses the memory of the host, and for some that are split
	d.Class = gpu.Class(d.Model, d.Memory)
	if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		d.Compute = fmt.Sprintf("%d.%d", major, minor)
	}
	if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		d.PCI = busID(pci)
	}
	if minor, ret := handle.GetMinorNumber(); ret == nvml.SUCCESS {
		d.Node = fmt.Sprintf("/dev/nvidia%d", minor)
	}
	return &card{handle: handle, device: d}, nil
}

// memory returns the total and the used memory. The newer call does not count the driver's own memory as used.
func (c *collector) memory(handle nvml.Device) (total, used job.Size, ret nvml.Return) {
	if c.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, newer := handle.GetMemoryInfo_v2(); newer == nvml.SUCCESS {
			return size(m.Total), size(m.Used), nvml.SUCCESS
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

// numa returns the NUMA node of the card; -1 if there is none or more than one.
func (c *collector) numa(handle nvml.Device) int {
	if !c.has("nvmlDeviceGetMemoryAffinity") {
		return -1
	}
	set, ret := handle.GetMemoryAffinity(numaWords*8, nvml.AFFINITY_SCOPE_NODE) // the library's binding counts in bytes
	if ret != nvml.SUCCESS {
		return -1
	}
	node := -1
	for i, word := range set {
		if word == 0 {
			continue
		}
		if node >= 0 || bits.OnesCount(word) != 1 {
			return -1
		}
		node = i*bits.UintSize + bits.TrailingZeros(word)
	}
	return node
}

// split returns the card itself, or its MIG instances if it is split. A card in MIG mode without instances has no
// units.
func (c *collector) split(crd *card) []unit {
	if !c.isMIG(crd.handle) {
		return []unit{{handle: crd.handle, card: crd, device: crd.device}}
	}
	n, ret := crd.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var units []unit
	for i := range n {
		handle, ret := crd.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // no instance here
		}
		if d, ok := c.readInstance(handle, crd.device); ok {
			units = append(units, unit{handle: handle, card: crd, device: d})
		}
	}
	return units
}

func (c *collector) isMIG(handle nvml.Device) bool {
	for _, symbol := range []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"} {
		if !c.has(symbol) {
			return false
		}
	}
	mode, _, ret := handle.GetMigMode()
	return ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
}

// readInstance returns a MIG instance: a copy of its card with the values of the instance.
func (c *collector) readInstance(handle nvml.Device, of gpu.Device) (gpu.Device, bool) {
	d := of
	d.Parent = of.UUID
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS || uuid == "" {
		return d, false
	}
	d.UUID = uuid
	if d.Memory, _, ret = c.memory(handle); ret != nvml.SUCCESS {
		return d, false
	}
	name, ret := handle.GetName()
	if ret != nvml.SUCCESS || !strings.Contains(name, " MIG ") {
		name = of.Model + " MIG " + c.profile(handle, d.Memory)
	}
	d.Model = name
	d.Class = gpu.Class(d.Model, of.Memory)
	return d, true
}

// profile returns the profile name of an instance, for libraries that do not report it.
func (c *collector) profile(handle nvml.Device, memory job.Size) string {
	slices := uint32(0)
	if c.has("nvmlDeviceGetAttributes_v2") {
		if a, ret := handle.GetAttributes(); ret == nvml.SUCCESS {
			slices = a.GpuInstanceSliceCount
		}
	}
	return fmt.Sprintf("%dg.%dgb", slices, int(math.Ceil(float64(memory)/(1<<30))))
}
