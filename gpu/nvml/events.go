//go:build cgo && !nonvml

package nvml

// Xid errors, as events of the driver.

import (
	"context"
	"runtime"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvidia"
)

const (
	// eventWait is how long one call waits for an event, in milliseconds. An event ends it at once; only the end of
	// the process has to wait for it.
	eventWait = 10_000
	// eventPause is the pause after a call that did not wait.
	eventPause = 10 * time.Second
)

// events are the cards whose errors are reported.
type events struct {
	wait       func(nvml.EventSet, map[nvml.Device]gpu.Device) // waits for the events of these cards; nil: nobody wants them
	registered map[string]bool                                 // by UUID
}

// watchEvents reports from now on the errors of all cards of the last list that support events and are not yet watched.
// A card that is found later gets a set of its own, because the first is waited for.
func (c *collector) watchEvents() {
	if c.events.wait == nil || !c.has("nvmlEventSetCreate") {
		return
	}
	cards := map[nvml.Device]gpu.Device{}
	for _, u := range c.units {
		if dev := u.card.device; !c.events.registered[dev.UUID] {
			cards[u.card.handle] = dev
		}
	}
	if len(cards) == 0 {
		return
	}
	set, ret := c.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	for handle, dev := range cards {
		supported, ret := handle.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || supported&nvml.EventTypeXidCriticalError == 0 || handle.RegisterEvents(nvml.EventTypeXidCriticalError, set) != nvml.SUCCESS {
			delete(cards, handle)
			continue
		}
		if c.events.registered == nil {
			c.events.registered = map[string]bool{}
		}
		c.events.registered[dev.UUID] = true
	}
	if len(cards) == 0 {
		_ = set.Free() // an error here does not matter
		return
	}
	c.events.wait(set, cards)
}

// nameOf returns the UUID of the card that an event is about; empty if it is not known. A lost card does not tell its
// UUID, but its handle, its PCI address or its index may still be that of a known card.
func nameOf(handle nvml.Device, of map[nvml.Device]gpu.Device) string {
	if handle == nil {
		return ""
	}
	if dev, known := of[handle]; known {
		return dev.UUID
	}
	if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS {
		return uuid
	}
	pci, ret := handle.GetPciInfo()
	address := busID(pci)
	index, errIndex := handle.GetIndex()
	for _, dev := range of {
		if ret == nvml.SUCCESS && dev.PCI == address && address != "" {
			return dev.UUID
		}
	}
	for _, dev := range of {
		if errIndex == nvml.SUCCESS && dev.Index == index {
			return dev.UUID
		}
	}
	return ""
}

// waitEvents reports events until ctx ends. It locks its goroutine to a thread, which is in the library most of the
// time.
func waitEvents(ctx context.Context, set nvml.EventSet, of map[nvml.Device]gpu.Device, report func(gpu.Fault)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		event, ret := set.Wait(eventWait)
		if ret == nvml.SUCCESS {
			report(nvidia.Xid(nameOf(event.Device, of), event.EventData, time.Now()))
		} else if ret != nvml.ERROR_TIMEOUT { // with a lost GPU each call fails at once
			pause.Reset(eventPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
	}
}
