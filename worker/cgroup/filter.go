package cgroup

// Device filters of version 2: a BPF program for each set of devices that some task may not open. A program checks device
// numbers, so it also applies to device files that are made later.

import (
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// maxPrograms bounds the programs that are kept for later tasks. A host needs few: one for each set of GPUs.
const maxPrograms = 512

// filters are the loaded programs.
type filters struct {
	mu  sync.Mutex
	all map[string]*ebpf.Program // guarded by mu
}

// probe attaches a program to a group and detaches it, to check whether this host permits that.
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

// deny forbids the processes of a group to open devices.
func (f *filters) deny(fd int, devs []Closed) error {
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

// program returns the program that denies a set of devices.
func (f *filters) program(devs []Closed) (*ebpf.Program, error) {
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
	if f.all == nil || len(f.all) >= maxPrograms {
		f.closeLocked()
		f.all = map[string]*ebpf.Program{}
	}
	f.all[key] = p
	return p, nil
}

// rules allow every device except devs. A later rule overrides those before it.
func rules(devs []Closed) []specs.LinuxDeviceCgroup {
	any := int64(-1)
	all := []specs.LinuxDeviceCgroup{{Allow: true, Type: "a", Major: &any, Minor: &any, Access: "rwm"}}
	for _, d := range devs {
		major := int64(d.Major)
		all = append(all, specs.LinuxDeviceCgroup{Type: "c", Major: &major, Minor: &any, Access: "rwm"})
		for _, m := range d.Open {
			minor := int64(m)
			all = append(all, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: "rwm"})
		}
	}
	return all
}

func (f *filters) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeLocked()
}

func (f *filters) closeLocked() {
	for _, p := range f.all {
		_ = p.Close() // an attached program lives as long as its group
	}
	f.all = nil
}
