//go:build e2e

package e2e

// A cluster of four hosts under random faults: processes on them are killed and paused, their network is cut and their
// disks are filled, while jobs run. A lock and a ledger outside of muster show what ran twice and what was lost.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

const (
	// faultsFor is how long a run injects faults; MUSTER_FAULTS overrides it.
	faultsFor = 40 * time.Second
	// faultsLease is the lease of the jobs that another host may take over.
	faultsLease = "30s"
	// afterFaults bounds how long the cluster takes to end all jobs after the last fault.
	afterFaults = 3 * time.Minute
)

// faultTest is a cluster under faults, and the jobs that were submitted to it.
type faultTest struct {
	t     *testing.T
	lab   *lab
	hosts []*daemon
	dir   string // the directory of the locks and the ledger
	name  string // the name of all jobs

	mu     sync.Mutex
	jobs   map[string]faultJob // guarded by mu: by ID
	shells map[string]bool     // guarded by mu: jobs of which a process was killed
	faults map[string]int      // guarded by mu: how often each kind was done
}

type faultJob struct {
	n       int
	code    int
	requeue bool
}

// faultsScript locks a file of the job from a process that its shell leaves behind, writes start and end into a ledger
// and exits with a code. So a task that runs twice, or whose child outlives it, is detected.
const faultsScript = `exec 9>>job-%[1]d
flock -n 9 || { echo "job %[1]d runs twice at $(hostname), attempt $MUSTER_ATTEMPT" >>wrong; exit 99; }
echo "%[1]d start $(hostname) $MUSTER_ATTEMPT" >>ledger
setsid sleep %[2]s & wait $!
echo "%[1]d end $(hostname) $MUSTER_ATTEMPT" >>ledger
exit %[3]d`

// submit submits one job to any of the hosts, repeatedly until one has accepted it.
func (l *faultTest) submit(n int, chance *rand.Rand) {
	j := faultJob{n: n, requeue: chance.IntN(5) > 0}
	if chance.IntN(4) == 0 {
		j.code = 3
	}
	took := fmt.Sprintf("%d.%02d", chance.IntN(6), chance.IntN(100))
	args := []string{"submit", "-J", l.name, "-D", l.dir, "-c", "1", "-G", "1", "--idempotency-key", l.name + "-" + strconv.Itoa(n)}
	if !j.requeue {
		args = append(args, "--no-requeue")
	}
	switch chance.IntN(3) {
	case 0:
		args = append(args, "--on-partition", "fence", "--lease", faultsLease)
	case 1:
		args = append(args, "--on-partition", "hold")
	}
	args = append(args, "--", "sh", "-c", fmt.Sprintf(faultsScript, n, took, j.code))
	owner := l.hosts[chance.IntN(len(l.hosts))] // the key of a job is valid at one daemon
	for late := time.Now().Add(afterFaults); ; {
		r := owner.muster(args...)
		if r.code == 0 {
			l.mu.Lock()
			l.jobs[strings.TrimSpace(r.stdout)] = j
			l.mu.Unlock()
			return
		}
		if time.Now().After(late) {
			l.t.Errorf("job %d was not accepted: got %s, want an id", n, r.stderr)
			return
		}
		time.Sleep(100 * time.Millisecond) // its host is away on purpose
	}
}

// open returns how many of the jobs have not ended, by the ledger.
func (l *faultTest) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, _ := os.ReadFile(filepath.Join(l.dir, "ledger"))
	ended := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == "end" {
			ended[f[0]] = true
		}
	}
	return len(l.jobs) - len(ended)
}

// injectFault injects one fault into a host, waits, and undoes it.
func (l *faultTest) injectFault(i int, chance *rand.Rand) {
	d := l.hosts[i]
	span := time.Duration(500+chance.IntN(40_000)) * time.Millisecond
	kinds := []struct {
		name string
		do   func() (undo func())
	}{
		{"daemon killed", func() func() { d.kill(); return func() { d.start() } }},
		{"runner killed", func() func() { d.killRunners(); return nil }},
		{"both killed", func() func() { d.kill(); d.killRunners(); return func() { d.start() } }},
		{"daemon paused", func() func() { return stopProcesses(d.cmd.Process.Pid) }},
		{"runner paused", func() func() { return stopProcesses(d.runners()...) }},
		{"both paused", func() func() { return stopProcesses(append(d.runners(), d.cmd.Process.Pid)...) }},
		{"cut off", func() func() { l.lab.unplug(i); return func() { l.lab.plugIn(i) } }},
		{"cut off, its runner paused", func() func() {
			l.lab.unplug(i)
			on := stopProcesses(d.runners()...)
			return func() { l.lab.plugIn(i); on() }
		}},
		{"disk full", func() func() {
			in := fillAll(l.t, filepath.Join(d.dir, "data"))
			return func() { _ = os.RemoveAll(in) }
		}},
		{"shell killed", func() func() { l.killShell(chance); return nil }},
	}
	kind := kinds[chance.IntN(len(kinds))]
	l.mu.Lock()
	l.faults[kind.name]++
	l.mu.Unlock()
	l.t.Logf("%s n%d: %s for %s", time.Now().Format("15:04:05.0"), i+1, kind.name, span)
	undo := kind.do()
	if undo == nil {
		return
	}
	time.Sleep(span) // how long the fault lasts
	undo()
}

// stopProcesses stops processes and returns a function that lets them go on.
func stopProcesses(pids ...int) func() {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// killShell kills one of the tasks' shells, so that this job may end by a signal.
func (l *faultTest) killShell(chance *rand.Rand) {
	found := processesNamed(l.t, l.name)
	if len(found) == 0 {
		return
	}
	proc := filepath.Dir(found[chance.IntN(len(found))])
	pid, _ := strconv.Atoi(filepath.Base(proc))
	env, _ := os.ReadFile(filepath.Join(proc, "environ"))
	for v := range strings.SplitSeq(string(env), "\x00") {
		if id, is := strings.CutPrefix(v, "MUSTER_JOB_ID="); is && pid > 1 {
			l.mu.Lock()
			l.shells[id] = true
			l.mu.Unlock()
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestRandomFaultsLoseNoJob injects faults into four hosts. No job is lost, none runs twice at once, and each ends with
// its own code.
func TestRandomFaultsLoseNoJob(t *testing.T) {
	span := faultsFor
	if text := os.Getenv("MUSTER_FAULTS"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		span = d
	} else {
		atFullSize(t)
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number is fine
	t.Logf("seed %d", seed)
	const hosts = 4
	l := &faultTest{
		t: t, lab: newLab(t, hosts), dir: t.TempDir(), name: fmt.Sprintf("faultTest-%d", seed),
		jobs: map[string]faultJob{}, shells: map[string]bool{}, faults: map[string]int{},
	}
	l.hosts = l.lab.onSmallDisks(hosts, "--gpus", "sim:4xH100-80GB", "--cpus", "8")
	stop := make(chan struct{})
	done := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	var work sync.WaitGroup
	for i := range hosts {
		work.Go(func() {
			chance := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // repeatable, not secret
			for n := i; !done(); n += hosts {
				if l.open() > 24 {
					n -= hosts
					time.Sleep(100 * time.Millisecond) // a bound on the load, not a wait for a condition
					continue
				}
				l.submit(n, chance)
			}
		})
		work.Go(func() {
			chance := rand.New(rand.NewPCG(seed, 100+uint64(i))) //nolint:gosec // repeatable, not secret
			for !done() {
				time.Sleep(time.Duration(chance.IntN(8000)) * time.Millisecond) // the random moment of the next fault
				if !done() {
					l.injectFault(i, chance)
				}
			}
		})
	}
	time.Sleep(span) // how long faults are injected
	close(stop)
	work.Wait()
	l.settle()
}

// settle waits for the end of each job and checks it by what the jobs have written.
func (l *faultTest) settle() {
	l.t.Helper()
	late := time.Now().Add(afterFaults)
	again, nodeFail := 0, 0
	for id, j := range l.jobs {
		var doc api.Job
		for {
			r := l.hosts[0].muster("show", id, "--json")
			if r.code == 0 && json.Unmarshal([]byte(r.stdout), &doc) == nil && doc.Ended() {
				break
			}
			if time.Now().After(late) {
				l.t.Errorf("job %s (%d) has not ended after %s: %s%s", id, j.n, afterFaults, r.stdout, r.stderr)
				break
			}
			time.Sleep(100 * time.Millisecond) // a daemon that has just come back does not know all jobs yet
		}
		switch {
		case !doc.Ended():
		case l.shells[id] && doc.State == "FAILED":
		case doc.State == "NODE_FAIL" && !j.requeue:
			nodeFail++
		case doc.ExitCode == nil || *doc.ExitCode != j.code:
			l.t.Errorf("job %s (%d) ended %s, exit code %v, want %d: %s %s", id, j.n, doc.State, doc.ExitCode, j.code, doc.Reason, doc.ReasonDetail)
		case doc.Tasks[0].Attempt > 1:
			again++
		}
	}
	if text, err := os.ReadFile(filepath.Join(l.dir, "wrong")); err == nil {
		l.t.Errorf("got %s, want that no job ran twice at once", text)
	}
	kinds := make([]string, 0, len(l.faults))
	total := 0
	for kind, n := range l.faults {
		kinds, total = append(kinds, fmt.Sprintf("%d %s", n, kind)), total+n
	}
	slices.Sort(kinds)
	l.t.Logf("%d jobs, %d faults (%s); %d ran again, %d ended with their host", len(l.jobs), total, strings.Join(kinds, ", "), again, nodeFail)
	if len(l.jobs) == 0 || total == 0 {
		l.t.Error("no job or no fault: nothing was tested")
	}
	eventually(l.t, "end of all processes of ended jobs", func() bool { return len(processesNamed(l.t, l.name)) == 0 })
}
