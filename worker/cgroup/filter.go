package cgroup

// Access to devices with version 2: a small program in the kernel for each set
// of devices that some task may not open.

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// filters are the programs that were loaded. A host has few sets: one for each
// choice of GPUs that tasks were given.
type filters struct {
	mu  sync.Mutex
	all map[string]*ebpf.Program // guarded by mu
}

// probe loads a program and attaches it to a group, to see whether that can be
// done here.
func (f *filters) probe(dir string) error {
	fd, err := openDir(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	p, err := f.program(nil)
	if err != nil {
		return err
	}
	o := link.RawAttachProgramOptions{Target: fd, Program: p, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI}
	if err := link.RawAttachProgram(o); err != nil {
		return fmt.Errorf("cgroup: attach device filter: %w", err)
	}
	return link.RawDetachProgram(link.RawDetachProgramOptions{Target: fd, Program: p, Attach: ebpf.AttachCGroupDevice})
}

// deny keeps the processes of a group from devices.
func (f *filters) deny(fd int, devs []Device) error {
	p, err := f.program(devs)
	if err != nil {
		return err
	}
	o := link.RawAttachProgramOptions{Target: fd, Program: p, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI}
	if err := link.RawAttachProgram(o); err != nil {
		return fmt.Errorf("cgroup: attach device filter: %w", err)
	}
	return nil
}

// program is the one that denies a set of devices.
func (f *filters) program(devs []Device) (*ebpf.Program, error) {
	key := fmt.Sprint(devs)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.all[key]; p != nil {
		return p, nil
	}
	insts, license, err := cgroup2.DeviceFilter(rules(devs))
	if err != nil {
		return nil, fmt.Errorf("cgroup: device filter: %w", err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, Instructions: insts, License: license})
	if err != nil {
		return nil, fmt.Errorf("cgroup: load device filter: %.200s", strings.SplitN(err.Error(), "\n", 2)[0])
	}
	if f.all == nil {
		f.all = map[string]*ebpf.Program{}
	}
	f.all[key] = p
	return p, nil
}

// rules allow every device but some; a later rule wins over those before.
func rules(devs []Device) []specs.LinuxDeviceCgroup {
	any := int64(-1)
	all := []specs.LinuxDeviceCgroup{{Allow: true, Type: "a", Major: &any, Minor: &any, Access: "rwm"}}
	for _, d := range slices.Clone(devs) {
		major, minor := int64(d.Major), int64(d.Minor)
		all = append(all, specs.LinuxDeviceCgroup{Type: "c", Major: &major, Minor: &minor, Access: "rwm"})
	}
	return all
}

func (f *filters) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.all {
		_ = p.Close() // those that are attached live on with their group
	}
	f.all = nil
}
