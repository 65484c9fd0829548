package simgpu

// Scripted faults of simulated devices.

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvidia"
	"github.com/musterhq/muster/job"
)

// faultsOption precedes the script's name in a spec.
const faultsOption = "?faults="

// Faults reports the Xid errors of the script, if there is one, until ctx ends. A line of the script begins with the
// number of a device:
//
//	0 xid 79                 device 0 reports this error
//	0 unhealthy TEXT         it is unhealthy from now on
//	0 healthy                it is healthy from now on
//	0 ecc 3                  it has had 3 memory errors in all
//	0 foreign 10GiB          a program that muster did not start uses 10 GiB of it
//
// Other lines are ignored.
func (d *Driver) Faults(ctx context.Context) (<-chan gpu.Fault, error) {
	if err := d.state(ctx); err != nil {
		return nil, err
	}
	faults := make(chan gpu.Fault)
	if d.script == "" {
		context.AfterFunc(ctx, func() { close(faults) })
		return faults, nil
	}
	f, err := os.OpenFile(d.script, os.O_RDWR, 0) // O_RDWR: a pipe then stays open when its writers close it
	if err != nil {
		return nil, fmt.Errorf("simgpu: fault script: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() }) // ends the reading
	go func() {
		defer close(faults)
		defer stop()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if fault, ok := d.act(lines.Text()); ok {
				select {
				case faults <- fault:
				case <-ctx.Done():
				}
			}
		}
		<-ctx.Done()
	}()
	return faults, nil
}

// foreignPID is the PID of the simulated program; no task can have it.
const foreignPID = 1

// act carries out a line of the script. It returns true if there is an error to report.
func (d *Driver) act(line string) (gpu.Fault, bool) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return gpu.Fault{}, false
	}
	i, err := strconv.Atoi(words[0])
	if err != nil || i < 0 || i >= len(d.devices) {
		return gpu.Fault{}, false
	}
	value := strings.Join(words[2:], " ")
	number, _ := strconv.ParseUint(value, 10, 64)
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.statuses[i]
	switch words[1] {
	case "xid":
		return nvidia.Xid(s.UUID, number, time.Now()), true
	case "unhealthy":
		s.Health, s.Detail, s.Recovery = gpu.Unhealthy, value+" (simulated)", gpu.RecoveryReset
	case "healthy":
		s.Health, s.Detail, s.Recovery = gpu.Healthy, "", gpu.RecoveryNone
	case "ecc":
		s.ECC = number
	case "foreign":
		size, err := job.ParseSize(value)
		s.Processes, s.MemoryUsed = nil, 0
		if err == nil && size > 0 && size <= d.devices[i].Memory {
			s.Processes, s.MemoryUsed = []gpu.Process{{PID: foreignPID, Memory: size}}, size
		}
	}
	return gpu.Fault{}, false
}
