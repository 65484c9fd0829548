//go:build e2e

package e2e

// The driver of GPUs as it behaves on hosts: it is installed later, cards sleep and are lost, other programs use them,
// and a drained host releases them. The management library is one of the tests' own; see testdata/nvml.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/needtest"
)

// listed bounds the wait for another list of the GPUs, which is made every 30 s.
const listed = 75 * time.Second

// readGPUs makes the daemon list its GPUs and read their status now, as a person does who does not wait for it.
func (d *daemon) readGPUs() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		d.t.Fatal(err)
	}
}

// gpusSoonAre makes the daemon read its GPUs, and waits until they are as a test wants them.
func (d *daemon) gpusSoonAre(right func([]api.GPU) string) {
	d.t.Helper()
	d.readGPUs()
	d.gpusAre(patience, right)
}

// cards are the GPUs of a management library of the tests.
type cards struct {
	t       *testing.T
	dir     string // the directory that says what they do
	library string // the built library
	path    string // where the daemon finds it
}

// newCards builds the library; it is not installed yet.
func newCards(t *testing.T, n int) *cards {
	t.Helper()
	needtest.Headers(t, "gcc", "fcntl.h", "stdio.h", "stdlib.h", "string.h", "unistd.h")
	dir, err := os.MkdirTemp("", "muster-gpus-") //nolint:usetesting // tasks of other users read it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatalf("find the header of the library: %v", err)
	}
	c := &cards{t: t, dir: dir, library: filepath.Join(dir, "built.so"), path: filepath.Join(dir, "lib")}
	build := exec.Command("gcc", "-shared", "-fPIC", "-I", filepath.Join(strings.TrimSpace(string(header)), "pkg/nvml"), "-o", c.library, "testdata/nvml/nvml.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the library: %v\n%s", err, out)
	}
	if err := os.Mkdir(c.path, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	c.set("cards", strconv.Itoa(n))
	return c
}

// install puts the library where the daemon looks for it, in place of the former one.
func (c *cards) install() *cards {
	c.t.Helper()
	text, err := os.ReadFile(c.library)
	at := filepath.Join(c.path, "libnvidia-ml.so.1")
	if err == nil {
		err = os.WriteFile(at+".new", text, 0o755) //nolint:gosec // a library
	}
	if err == nil {
		err = os.Rename(at+".new", at)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return c
}

// daemon prepares a daemon that has these cards.
func (c *cards) daemon(args ...string) *daemon {
	c.t.Helper()
	d := newDaemon(c.t, "cat", append([]string{"--gpus", "auto", "--gpu-libraries", c.path, "--cpus", "8"}, args...)...)
	d.env = []string{"MUSTER_E2E_GPUS=" + c.dir}
	return d
}

// set says what the cards do; see testdata/nvml.
func (c *cards) set(what, text string) {
	c.t.Helper()
	at := filepath.Join(c.dir, what)
	err := os.WriteFile(at+".new", []byte(text), 0o644) //nolint:gosec // not secret
	if err == nil {
		err = os.Rename(at+".new", at)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cards) unset(what string) {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.dir, what)); err != nil {
		c.t.Fatal(err)
	}
}

// use says which programs use a card, with how many MiB each, and how much more is in use.
func (c *cards) use(card, more int, programs map[int]int) {
	c.t.Helper()
	var lines strings.Builder
	for pid, mib := range programs {
		fmt.Fprintln(&lines, pid, mib)
		more += mib
	}
	c.set(fmt.Sprintf("%d.processes", card), lines.String())
	c.set(fmt.Sprintf("%d.use", card), strconv.Itoa(more))
}

// holders returns the processes that have a file of the cards open, as fuser does with device files.
func (c *cards) holders() (pids []int) {
	c.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, link := range links {
		at, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(at, filepath.Join(c.dir, "open-")) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err == nil && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// agent waits until one process has the cards open, and returns it.
func (c *cards) agent() int {
	c.t.Helper()
	var pids []int
	untilRight(c.t, patience, func() string {
		if pids = c.holders(); len(pids) == 1 {
			return ""
		}
		return fmt.Sprintf("processes %v have the cards open, want one", pids)
	})
	return pids[0]
}

// other starts a program that no task started.
func other(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// gpusAre waits until the daemon's GPUs are as a test wants them; right returns what is wrong.
func (d *daemon) gpusAre(within time.Duration, right func([]api.GPU) string) {
	d.t.Helper()
	untilRight(d.t, within, func() string { return right(d.node(d.name).GPUs) })
}

// healthyGPUs wants this number of GPUs, all healthy.
func healthyGPUs(n int) func([]api.GPU) string {
	return func(all []api.GPU) string {
		healthy := 0
		for _, g := range all {
			if g.Health == "healthy" {
				healthy++
			}
		}
		if len(all) != n || healthy != n {
			return fmt.Sprintf("%d of %d GPUs are healthy, want %d: %+v", healthy, len(all), n, all)
		}
		return ""
	}
}

// TestDriverMayBeInstalledLaterAndReplaced checks that no restart of the daemon is needed, and that sleeping cards are
// listed.
func TestDriverMayBeInstalledLaterAndReplaced(t *testing.T) {
	t.Parallel()
	c := newCards(t, 2)
	d := c.daemon().start()
	if n := len(d.node("cat").GPUs); n != 0 {
		t.Fatalf("got %d GPUs without a driver, want 0", n)
	}
	c.set("init", "18") // NVML_ERROR_LIB_RM_VERSION_MISMATCH
	c.install()
	untilRight(t, listed, func() string {
		if out := d.muster("doctor").stdout; !strings.Contains(out, "the driver does not work") {
			return "doctor does not tell of the driver that does not work:\n" + out
		}
		return ""
	})
	c.set("0.wake", "6") // longer than any other answer may take
	c.unset("init")
	d.gpusSoonAre(healthyGPUs(2))
	c.unset("0.wake")
	first := c.agent()
	c.install()
	d.readGPUs()
	untilRight(t, listed, func() string {
		if pids := c.holders(); len(pids) != 1 || pids[0] == first {
			return fmt.Sprintf("processes %v have the cards open, want one that is not %d", pids, first)
		}
		return ""
	})
	d.gpusAre(patience, healthyGPUs(2))
	if node := d.node("cat"); node.Driver != "999.1" || node.GPUs[0].Simulated {
		t.Errorf("node: got %+v, want driver 999.1", node)
	}
}

// TestLostCardComesBack checks a lost card, and one whose memory cannot be read.
func TestLostCardComesBack(t *testing.T) {
	t.Parallel()
	c := newCards(t, 2).install()
	d := c.daemon().start()
	d.gpusAre(patience, healthyGPUs(2))
	c.set("1.memory", "999") // NVML_ERROR_UNKNOWN
	d.gpusSoonAre(func(all []api.GPU) string {
		if g := all[1]; g.Health != "unknown" || g.MemoryUsed != -1 || all[0].Health != "healthy" {
			return fmt.Sprintf("a card whose memory cannot be read: %+v", all)
		}
		return ""
	})
	both := d.ok("submit", "-G", "2", "--", "true")
	d.until(both, "PENDING for the GPU", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "GPUUnhealthy" })
	c.unset("1.memory")
	d.readGPUs()
	d.untilState(both, "SUCCEEDED")
	c.set("1.lost", "")
	d.gpusSoonAre(func(all []api.GPU) string {
		// An agent that began after the loss does not know the card.
		if len(all) != 2 || all[0].Health != "healthy" || all[1].Health != "unhealthy" && all[1].Health != "unknown" {
			return fmt.Sprintf("a lost card: %+v", all)
		}
		return ""
	})
	waits := d.ok("submit", "-G", "2", "--", "true")
	d.untilState(d.ok("submit", "-G", "1", "--", "true"), "SUCCEEDED")
	c.unset("1.lost") // only a new agent finds it
	d.gpusSoonAre(healthyGPUs(2))
	d.untilState(waits, "SUCCEEDED")
}

// TestDrainedHostReleasesItsGPUs checks that nothing of muster has a GPU open while its host is drained.
func TestDrainedHostReleasesItsGPUs(t *testing.T) {
	t.Parallel()
	c := newCards(t, 2).install()
	d := c.daemon().start()
	d.gpusAre(patience, healthyGPUs(2))
	first := c.agent()
	g := newGate(t)
	runs := d.ok(append([]string{"submit", "-G", "1", "--"}, g.script("exit 0")...)...)
	d.untilState(runs, "RUNNING")
	d.ok("node", "drain", "cat", "--reason", "new driver")
	if pid := c.agent(); pid != first {
		t.Errorf("got agent %[2]d, want %[1]d while a task holds a GPU", first, pid)
	}
	g.open()
	d.untilState(runs, "SUCCEEDED")
	open := func() string {
		if pids := c.holders(); len(pids) > 0 {
			return fmt.Sprintf("processes %v have the cards open", pids)
		}
		return ""
	}
	untilRight(t, patience, open)
	c.install() // a driver is replaced
	checkFor(t, 3*time.Second, func() string { d.readGPUs(); return open() })
	d.gpusAre(patience, healthyGPUs(2)) // as before
	if out := d.ok("gpus"); !strings.Contains(out, "ago: let go while the node is drained") {
		t.Errorf("gpus: want an age, got\n%s", out)
	}
	waits := d.ok("submit", "-G", "2", "--", "true")
	c.set("0.lost", "") // and a card is gone
	d.ok("node", "resume", "cat")
	for _, g := range d.node("cat").GPUs {
		if g.Index == 0 && g.Health == "healthy" || strings.Contains(g.Detail, "let go") {
			t.Errorf("right after resume: got %+v, want a new reading", g)
		}
	}
	c.unset("0.lost")
	d.untilState(d.ok("submit", "-G", "1", "--", "true"), "SUCCEEDED")
	d.gpusSoonAre(healthyGPUs(2))
	d.untilState(waits, "SUCCEEDED")
	// A daemon that is restarted while its host is drained releases them, too.
	d.ok("node", "drain", "cat")
	d.kill()
	d.start()
	untilRight(t, patience, open)
	if all := d.node("cat").GPUs; len(all) != 2 || all[0].ReadAt == nil {
		t.Errorf("after a restart: got %+v, want 2 GPUs with their last reading", all)
	}
}

// TestMemoryIsAttributedByControlGroup checks to whom the memory in use on a GPU is attributed.
func TestMemoryIsAttributedByControlGroup(t *testing.T) {
	c := newCards(t, 1).install()
	d := c.daemon().start()
	d.gpusAre(patience, healthyGPUs(1))
	if !strings.Contains(d.ok("doctor"), "cgroup v") {
		t.Skip("no control groups on this host")
	}
	free := func(least, most float64) func([]api.GPU) string {
		return func(all []api.GPU) string {
			if f := all[0].Free; f < least || f > most || all[0].Health != "healthy" {
				return fmt.Sprintf("free %g, %s %q, want %g to %g", f, all[0].Health, all[0].Detail, least, most)
			}
			return ""
		}
	}
	g := newGate(t)
	script := fmt.Sprintf("setsid sleep 7650 & echo begun; read line < %s", g.path)
	runs := d.ok("submit", "--gpu-share", "0.25", "--gpu-mem", "20GiB", "--", "sh", "-c", script)
	d.untilState(runs, "RUNNING")
	var fork int
	untilRight(t, patience, func() string {
		all := running("sleep\x007650\x00")
		if len(all) != 1 {
			return fmt.Sprintf("the task has not begun: %q", all)
		}
		fork, _ = strconv.Atoi(all[0])
		return ""
	})
	c.use(0, 300, map[int]int{fork: 10 << 10})
	d.gpusSoonAre(func(all []api.GPU) string {
		if all[0].MemoryUsed < 10<<30 {
			return fmt.Sprintf("in use: %d", all[0].MemoryUsed)
		}
		return free(0.75, 0.75)(all) // the memory of a task is not subtracted twice
	})
	// A program that began while the task runs uses half of the GPU.
	program := other(t)
	c.use(0, 300, map[int]int{fork: 10 << 10, program: 40 << 10})
	d.gpusSoonAre(free(0.2, 0.25))
	g.open()
	c.use(0, 300, map[int]int{program: 40 << 10})
	d.untilState(runs, "SUCCEEDED") // the program is not part of the task, so its end is not waited for
	d.gpusSoonAre(free(0.4, 0.5))
	// 75 GiB are in use, of which the listed programs have 1.
	c.use(0, 74<<10, map[int]int{program: 1 << 10})
	d.gpusSoonAre(free(0, 0.07))
	waits := d.ok("submit", "--gpu-share", "0.25", "--gpu-mem", "20GiB", "--", "true")
	d.until(waits, "PENDING", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "Resources" })
	c.use(0, 300, map[int]int{})
	d.readGPUs()
	d.untilState(waits, "SUCCEEDED")
}

// TestTasksFindTheDriversLibraries checks LD_LIBRARY_PATH of tasks.
func TestTasksFindTheDriversLibraries(t *testing.T) {
	t.Parallel()
	c := newCards(t, 1).install()
	d := c.daemon().start()
	if got := d.ok("run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"); got != c.path {
		t.Errorf("LD_LIBRARY_PATH: got %q, want %q", got, c.path)
	}
	if got := d.ok("run", "--env", "LD_LIBRARY_PATH=/opt/own", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"); got != "/opt/own:"+c.path {
		t.Errorf("LD_LIBRARY_PATH of a job that sets one: got %q, want %q", got, "/opt/own:"+c.path)
	}
	// Without the setting, the directories of the daemon's own variable that have the libraries.
	own := newDaemon(t, "amy", "--gpus", "auto", "--cpus", "2")
	own.env = []string{"MUSTER_E2E_GPUS=" + c.dir, "LD_LIBRARY_PATH=" + t.TempDir() + ":" + c.path}
	own.start()
	own.gpusAre(patience, healthyGPUs(1))
	if got := own.ok("run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"); got != c.path {
		t.Errorf("LD_LIBRARY_PATH: got %q, want %q", got, c.path)
	}
	sim := newDaemon(t, "ben", "--gpus", "sim:1xH100-80GB", "--cpus", "2")
	sim.env = own.env
	if got := sim.start().ok("run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"); got != "" {
		t.Errorf("LD_LIBRARY_PATH with simulated GPUs: got %q, want none", got)
	}
}
