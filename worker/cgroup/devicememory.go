package cgroup

// Memory of devices, such as that of a GPU: the dmem controller of version 2, since Linux 6.14.
//
// A kernel driver registers the memory of a device as a region, whose name has the device's PCI address, such as
// drm/0000:79:00.0/vram0. The root group lists all regions with their sizes. An allocation that would exceed the number in
// the dmem.max of a group fails. A program cannot change that. docs/operations.md says which
// drivers have regions.
//
// The limits that a vendor's service for shares reads are variables of the task, which a program can unset. They stay set for
// older kernels and drivers, for the part of the processors, and for containers, whose groups the engine makes. One such
// service for each share would enforce them, but then only one share could compute at a time.

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// DeviceMemory is the most that a task may take of the memory of one device.
type DeviceMemory struct {
	PCI   string // address of the device, such as 0000:79:00.0 or 00000000:79:00.0
	Bytes int64
}

// boundsOfDevices returns what is written to the dmem.max of a task. Devices without a region are left out.
func (t *Tree) boundsOfDevices(limits []DeviceMemory) []bound {
	if len(limits) == 0 || !t.inUnified(DMem) {
		return nil
	}
	regions, err := readBounded(filepath.Join(t.root, "dmem.capacity"))
	if err != nil {
		return nil // in a namespace of control groups: it is a file of the root only
	}
	var all []bound
	for _, l := range limits {
		for _, region := range regionsOf(string(regions), l.PCI) {
			all = append(all, bound{"dmem.max", region + " " + strconv.FormatInt(l.Bytes, 10)})
		}
	}
	return all
}

// regionsOf returns the names of the regions of a device from the text of dmem.capacity.
func regionsOf(capacity, pci string) []string {
	device, ok := parsePCI(pci)
	if !ok {
		return nil
	}
	var names []string
	for line := range strings.Lines(capacity) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
			at, ok := parsePCI(part)
			return ok && at.same(device)
		}) {
			names = append(names, name)
		}
	}
	return names
}

// pciAddress is where a device is. Some drivers name no function, which is then -1.
type pciAddress struct {
	domain, bus, device uint64
	function            int64
}

// parsePCI reads DOMAIN:BUS:DEVICE or DOMAIN:BUS:DEVICE.FUNCTION, in hexadecimal digits.
func parsePCI(text string) (pciAddress, bool) {
	place, function, has := strings.Cut(text, ".")
	parts := strings.Split(place, ":")
	if len(parts) != 3 {
		return pciAddress{}, false
	}
	var n [3]uint64
	for i, bits := range []int{32, 8, 5} {
		var err error
		if n[i], err = strconv.ParseUint(parts[i], 16, bits); err != nil {
			return pciAddress{}, false
		}
	}
	a := pciAddress{domain: n[0], bus: n[1], device: n[2], function: -1}
	if has {
		f, err := strconv.ParseUint(function, 16, 3)
		if err != nil {
			return pciAddress{}, false
		}
		a.function = int64(f) //nolint:gosec // 3 bits
	}
	return a, true
}

// same reports whether two addresses may be those of one device.
func (a pciAddress) same(b pciAddress) bool {
	known := a.function >= 0 && b.function >= 0
	return a.domain == b.domain && a.bus == b.bus && a.device == b.device && (!known || a.function == b.function)
}
