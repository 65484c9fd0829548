package cgroup

// The program of a device filter, instruction by instruction, and attached to a group if this host permits that.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// permits interprets a device filter like the kernel, for one access.
func permits(t *testing.T, program asm.Instructions, kind, access, major, minor uint32) bool {
	t.Helper()
	ctx := map[int16]uint64{0: uint64(access<<16 | kind), 4: uint64(major), 8: uint64(minor)}
	labels := map[string]int{}
	for i, ins := range program {
		if s := ins.Symbol(); s != "" {
			labels[s] = i
		}
	}
	var r [11]uint64
	for i := 0; i < len(program); i++ { // jumps only go forward
		ins := program[i]
		switch class := ins.OpCode.Class(); {
		case class == asm.LdXClass && ins.OpCode.Size() == asm.Half:
			r[ins.Dst] = ctx[ins.Offset] & 0xffff
		case class == asm.LdXClass && ins.OpCode.Size() == asm.Word:
			r[ins.Dst] = ctx[ins.Offset]
		case class.IsALU() && ins.OpCode.ALUOp() == asm.RSh:
			r[ins.Dst] >>= uint(ins.Constant)
		case class.IsALU() && ins.OpCode.ALUOp() == asm.Mov && ins.OpCode.Source() == asm.ImmSource:
			r[ins.Dst] = uint64(ins.Constant)
		case class.IsJump() && ins.OpCode.JumpOp() == asm.Exit:
			return r[0] == 1
		case class.IsJump() && ins.OpCode.JumpOp() == asm.JNE && ins.OpCode.Source() == asm.ImmSource:
			if r[ins.Dst] != uint64(ins.Constant) {
				to, known := labels[ins.Reference()]
				if !known || to <= i {
					t.Fatalf("jump to %q, want a later instruction", ins.Reference())
				}
				i = to - 1
			}
		default:
			t.Fatalf("unknown instruction %v", ins)
		}
	}
	t.Fatal("the program does not end")
	return false
}

// A filter denies a major number except for some minors, and nothing else.
func TestFilterDeniesItsMajorNumberOnly(t *testing.T) {
	many := Closed{Major: 507}
	for m := range uint32(64) {
		many.Open = append(many.Open, 3*m)
	}
	for name, closed := range map[string][]Closed{
		"nothing": nil, "a whole major": {{Major: 195}}, "a GPU": {{Major: 195, Open: []uint32{1, 254, 255}}, {Major: 507}},
		"an instance": {{Major: 195, Open: []uint32{0, 255}}, {Major: 507, Open: []uint32{21, 22}}, {Major: 510}}, "all instances": {{Major: 195}, many},
	} {
		program, _, err := cgroup2.DeviceFilter(rules(closed))
		if err != nil {
			t.Fatal(err)
		}
		open := func(major, minor uint32) bool {
			for _, c := range closed {
				if c.Major == major {
					return slices.Contains(c.Open, minor)
				}
			}
			return true
		}
		for _, major := range []uint32{1, 5, 136, 194, 195, 196, 507, 508, 510, 511} {
			for _, minor := range []uint32{0, 1, 2, 3, 21, 22, 23, 63, 189, 192, 253, 254, 255, 256, 4322, 8191, 8192, 1<<20 - 1} {
				for _, access := range []uint32{unix.BPF_DEVCG_ACC_READ, unix.BPF_DEVCG_ACC_READ | unix.BPF_DEVCG_ACC_WRITE, unix.BPF_DEVCG_ACC_MKNOD} {
					if got, want := permits(t, program, unix.BPF_DEVCG_DEV_CHAR, access, major, minor), open(major, minor); got != want {
						t.Errorf("%s: access %d of character device %d:%d is permitted: %t, want %t", name, access, major, minor, got, want)
					}
					if !permits(t, program, unix.BPF_DEVCG_DEV_BLOCK, access, major, minor) {
						t.Errorf("%s: block device %d:%d is denied", name, major, minor)
					}
				}
			}
		}
	}
}

// Version 1 has a rule for each denied minor number, or one for the major number.
func TestRulesOfVersion1DenyMinorNumbers(t *testing.T) {
	if got := fmt.Sprint((Closed{Major: 195, Minors: 256}).denials()); got != "[{devices.deny c 195:* rwm}]" {
		t.Errorf(`a whole major: %s, want "[{devices.deny c 195:* rwm}]"`, got)
	}
	if got := fmt.Sprint((Closed{Major: 507, Minors: 5, Open: []uint32{1, 3, 9}}).denials()); got != "[{devices.deny c 507:0 rwm} {devices.deny c 507:2 rwm} {devices.deny c 507:4 rwm}]" {
		t.Errorf(`but for two minors: %s, want "[{devices.deny c 507:0 rwm} {devices.deny c 507:2 rwm} {devices.deny c 507:4 rwm}]"`, got)
	}
}

// A task may open the files of its own devices only, whether they existed before it or not.
func TestTaskOpensItsOwnDevicesOnly(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			tree := newTree(t, b.o)
			if !tree.Bounds(Devices) {
				t.Skipf("%s does not restrict devices", tree)
			}
			t.Logf("version 2 filters devices: %t", tree.find(Devices) == nil)
			dir := t.TempDir()
			node := func(minor uint32) error {
				return unix.Mknod(filepath.Join(dir, fmt.Sprint(minor)), unix.S_IFCHR|0o666, int(unix.Mkdev(507, minor)))
			}
			if err := node(21); err != nil {
				t.Skip(err)
			}
			if err := unix.Mkfifo(filepath.Join(dir, "go"), 0o600); err != nil {
				t.Fatal(err)
			}
			own := Limits{Closed: []Closed{{Major: 195, Minors: 256}, {Major: 507, Minors: 8192, Open: []uint32{21, 22}}}}
			// Without a driver, an allowed open fails with ENXIO and a denied one with EPERM. mknod is always denied.
			script := `cd "$1"; read x <go
for f in 21 22 23 4322 8191; do cat $f 2>&1 | grep -q 'not permitted' && echo $f closed || echo $f open; done >out
mknod mine c 507 23 2>/dev/null; test -e mine && cat mine 2>&1 | grep -v 'not permitted' >>out; exit 0`
			pid, err := spawn(tree, "task", own, "/bin/sh", "-c", script, "sh", dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, minor := range []uint32{22, 23, 4322, 8191} { // made while the task runs
				if err := node(minor); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte("x\n"), 0); err != nil {
				t.Fatal(err)
			}
			reap(t, pid)
			got, err := os.ReadFile(filepath.Join(dir, "out"))
			if want := "21 open\n22 open\n23 closed\n4322 closed\n8191 closed\n"; err != nil || string(got) != want {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
			if !tree.Empty("task") {
				t.Error("the group is not empty after its processes have ended")
			}
		})
	}
}
