package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// start checks that a process can be started in a group, as the runner does.
func start(fd int) error {
	_, err := syscall.ForkExec("/proc/self/none", []string{"none"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func newTree(t testing.TB, o Options) *Tree {
	t.Helper()
	tree, err := New(fmt.Sprintf("muster-test-%d-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))), o, start)
	if err != nil {
		t.Skipf("this host permits no control groups: %v", err)
	}
	t.Cleanup(func() {
		tree.Remove()
		for _, dir := range tree.Dirs() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left after the test", dir)
			}
		}
	})
	return tree
}

// spawn starts a program in a task's groups.
func spawn(tree *Tree, name string, l Limits, argv ...string) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := tree.Place(name, l)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	return p.Fork(func() (int, error) {
		attr := syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{}}
		if p.FD >= 0 {
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, p.FD
		}
		return syscall.ForkExec(argv[0], argv, &attr)
	})
}

func reap(t testing.TB, pid int) syscall.WaitStatus {
	t.Helper()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return status
}

var both = []struct {
	name string
	o    Options
}{{"any", Options{}}, {"v1", Options{NoUnified: true}}}

func TestTaskOpensNoOtherDevices(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			tree := newTree(t, b.o)
			t.Log(tree)
			if !tree.Bounds(Devices) {
				t.Skipf("%s does not restrict devices", tree)
			}
			dev := filepath.Join(t.TempDir(), "dev") // the same numbers as /dev/full, which nothing else here uses
			if err := unix.Mknod(dev, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 7))); err != nil {
				t.Skip(err)
			}
			for name, l := range map[string]Limits{
				"open": {}, "denied": {Closed: []Closed{{Major: 1, Minors: 256}}}, "but not": {Closed: []Closed{{Major: 1, Minors: 256, Open: []uint32{3, 7}}}},
				"nor others": {Closed: []Closed{{Major: 1, Minors: 256, Open: []uint32{3}}}},
			} {
				pid, err := spawn(tree, name, l, "/bin/sh", "-c", "exec 3<"+dev)
				if err != nil {
					t.Fatal(err)
				}
				if status := reap(t, pid); status.Exited() && (status.ExitStatus() == 0) != (name == "open" || name == "but not") {
					t.Errorf("%s: exit status %d, want 0 only for open and but not", name, status.ExitStatus())
				}
				if !tree.Empty(name) {
					t.Errorf("%s is not empty after its processes have ended", name)
				}
			}
		})
	}
}

// A kill by the directory of a task's group never hits a later task.
func TestEachTaskGetsAGroupOfItsOwn(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			tree, seen := newTree(t, b.o), map[string]bool{}
			for n := range 3 {
				name := fmt.Sprintf("task%d", n)
				pid, err := spawn(tree, name, Limits{CPUs: 1}, "/bin/true")
				if err != nil {
					t.Fatal(err)
				}
				if group := tree.Group(name); group == "" || seen[group] {
					t.Errorf("%s has no group, or the group %q of another", name, group)
				} else {
					seen[group] = true
				}
				reap(t, pid)
				if !tree.Empty(name) {
					t.Errorf("%s is not empty after its processes have ended", name)
				}
			}
		})
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, c := range both {
		for name, l := range map[string]Limits{
			"cpu": {CPUs: 1}, "cpu+pids": {CPUs: 2, PIDs: 4096}, "cpu+closed": {CPUs: 1, Closed: []Closed{{Major: 195, Minors: 256}}},
			"gpu":      {CPUs: 1, Closed: []Closed{{Major: 195, Minors: 256, Open: []uint32{1, 254, 255}}, {Major: 507, Minors: 8192}}},
			"instance": {CPUs: 1, Closed: []Closed{{Major: 195, Minors: 256, Open: []uint32{1, 254, 255}}, {Major: 507, Minors: 8192, Open: []uint32{21, 22}}}},
			"all":      {CPUs: 2, PIDs: 4096, Memory: 1 << 30, Closed: []Closed{{Major: 195, Minors: 256}}},
		} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				tree := newTree(b, c.o)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for b.Loop() {
					p, err := tree.Place("x", l)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := p.Fork(func() (int, error) { return 1, nil }); err != nil {
						b.Fatal(err)
					}
					p.Close()
					if !tree.Empty("x") {
						b.Fatal("not empty")
					}
				}
			})
		}
	}
}
