//go:build cgo && !nonvml

package nvml

// Xid errors, as events of the driver.

import (
	"context"
	"runtime"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
)

const (
	// eventWait is how long one call waits for an event, in milliseconds. An event ends it at once; only the end of
	// the process has to wait for it.
	eventWait = 10_000
	// eventPause is the pause after a call that did not wait.
	eventPause = 10 * time.Second
)

// watchEvents reports the errors of all GPUs that support events, until ctx ends.
func (c *collector) watchEvents(ctx context.Context, report func(gpu.Fault)) {
	if !c.has("nvmlEventSetCreate") {
		return
	}
	set, ret := c.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	n, _ := c.lib.DeviceGetCount()
	registered := 0
	for i := range n {
		dev, ret := c.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		supported, ret := dev.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || supported&nvml.EventTypeXidCriticalError == 0 {
			continue
		}
		if dev.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS {
			registered++
		}
	}
	if registered == 0 {
		_ = set.Free() // an error here does not matter
		return
	}
	go waitEvents(ctx, set, report)
}

// waitEvents reports events until ctx ends. It locks its goroutine to a thread, which is in the library most of the
// time.
func waitEvents(ctx context.Context, set nvml.EventSet, report func(gpu.Fault)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		event, ret := set.Wait(eventWait)
		if ret == nvml.SUCCESS {
			f := gpu.Fault{Xid: event.EventData, At: time.Now()}
			if event.Device != nil {
				f.UUID, _ = event.Device.GetUUID() // empty: the driver does not report it
			}
			report(f)
		} else if ret != nvml.ERROR_TIMEOUT { // with a lost GPU each call fails at once
			pause.Reset(eventPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
	}
}
