//go:build e2e

package e2e

// Daemons and runners are killed at random moments under load.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// chaosKills is the number of kills; MUSTER_CHAOS overrides it.
const chaosKills = 20

// chaos is a load of short jobs. Each job itself detects whether it runs twice, or its device is in use twice.
type chaos struct {
	t     *testing.T
	name  string // name of its jobs
	dir   string
	owner *daemon

	mu   sync.Mutex
	jobs map[string]chaosJob // guarded by mu: by ID
}

type chaosJob struct {
	code    int
	requeue bool
}

// submit submits one job, and repeats that until a daemon has accepted it.
func (c *chaos) submit(n int, chance *rand.Rand) string {
	j := chaosJob{code: chance.IntN(4), requeue: chance.IntN(3) > 0}
	script := fmt.Sprintf(`cd %s; exec 9>>job-%d; flock -n 9 || { echo job %d runs twice >>wrong; exit 99; }
exec 8>>"$CUDA_VISIBLE_DEVICES"; flock -n 8 || { echo device of job %d is held twice >>wrong; exit 98; }
sleep 0.%02d; exit %d`, c.dir, n, n, n, chance.IntN(40), j.code)
	args := []string{"submit", "-J", c.name, "-c", "0", "-G", "1", "--idempotency-key", "chaos-" + strconv.Itoa(n)}
	if !j.requeue {
		args = append(args, "--no-requeue")
	}
	late := time.Now().Add(patience)
	for {
		r := c.owner.muster(append(args, "--", "sh", "-c", script)...)
		if r.code == 0 {
			id := strings.TrimSpace(r.stdout)
			c.mu.Lock()
			c.jobs[id] = j
			c.mu.Unlock()
			return id
		}
		if time.Now().After(late) {
			c.t.Errorf("job %d was not accepted: got %s, want an id", n, r.stderr)
			return ""
		}
	}
}

// wait follows a job to its end, even if the daemon that it asks dies.
func (c *chaos) wait(id string) {
	late := time.Now().Add(patience)
	for {
		r := c.owner.muster("wait", id)
		if r.code != 125 && r.code != 1 || time.Now().After(late) {
			return
		}
		var doc api.Job
		if r := c.owner.muster("show", id, "--json"); r.code == 0 && json.Unmarshal([]byte(r.stdout), &doc) == nil && doc.Ended() {
			return
		}
	}
}

// runners returns the PIDs of a daemon's living runners, from the locks that they hold.
func (d *daemon) runners() []int {
	d.t.Helper()
	locks, err := filepath.Glob(filepath.Join(d.dir, "data", "run", "runner-*.lock"))
	if err != nil {
		d.t.Fatal(err)
	}
	var pids []int
	for _, path := range locks {
		var info struct {
			PID int `json:"pid"`
		}
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &info) == nil && info.PID > 0 {
			pids = append(pids, info.PID)
		}
	}
	return pids
}

func (d *daemon) killRunners() {
	for _, pid := range d.runners() {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(text), d.dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestRandomKillsLoseNoJob kills the worker's daemon, its runner, both, and the owner's daemon. No job is lost, runs
// twice at once or ends with a wrong code. At the end no device is held and no process is left.
func TestRandomKillsLoseNoJob(t *testing.T) {
	t.Parallel()
	kills := chaosKills
	if n, err := strconv.Atoi(os.Getenv("MUSTER_CHAOS")); err == nil {
		kills = n
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number is fine
	t.Logf("seed %d", seed)
	amy := newDaemon(t, "amy", "--no-worker").start()
	cat := newDaemon(t, "cat", "--gpus", "sim:8xH100-80GB").start(amy.invite().flags()...)
	amy.untilNodes(2)
	c := &chaos{t: t, name: fmt.Sprintf("chaos-%d", seed), dir: t.TempDir(), owner: amy, jobs: map[string]chaosJob{}}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 6 {
		load.Go(func() {
			chance := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // repeatable, not secret
			for n := i; ; n += 6 {
				select {
				case <-stop:
					return
				default:
				}
				if id := c.submit(n, chance); id != "" && chance.IntN(4) > 0 {
					c.wait(id)
				}
			}
		})
	}
	c.killAll(kills, rand.New(rand.NewPCG(seed, 99)), amy, cat) //nolint:gosec // repeatable, not secret
	close(stop)
	load.Wait()
	c.settle(cat)
}

func (c *chaos) killAll(kills int, chance *rand.Rand, owner, worker *daemon) {
	for range kills {
		time.Sleep(time.Duration(chance.IntN(300)) * time.Millisecond) // the random moment, not a wait for a condition
		switch chance.IntN(4) {
		case 0:
			worker.kill()
			worker.start()
		case 1:
			worker.killRunners()
		case 2:
			worker.kill()
			worker.killRunners()
			worker.start()
		case 3:
			owner.kill()
			owner.start()
		}
	}
}

// settle waits for the end of every job and checks what the jobs have left behind.
func (c *chaos) settle(worker *daemon) {
	c.t.Helper()
	lost, again := 0, 0
	for id, j := range c.jobs {
		doc := c.owner.until(id, "ended", func(d api.Job) bool { return d.Ended() })
		switch {
		case doc.State == "NODE_FAIL" && !j.requeue:
			lost++
		case doc.ExitCode == nil || *doc.ExitCode != j.code:
			c.t.Errorf("job %s ended %s, exit code %v, want %d: %+v", id, doc.State, doc.ExitCode, j.code, doc)
		case doc.Tasks[0].Attempt > 1:
			again++
		}
	}
	c.t.Logf("%d jobs; %d were lost with their runner, %d more were run again", len(c.jobs), lost, again)
	if len(c.jobs) == 0 || lost+again == 0 {
		c.t.Error("no runner was killed while it had a task, so that nothing was tested")
	}
	if text, err := os.ReadFile(filepath.Join(c.dir, "wrong")); err == nil {
		c.t.Errorf("got %s, want that no job or device was in use twice", text)
	}
	id := c.owner.ok("submit", "-G", "8", "--", "true") // every device is free
	c.owner.untilState(id, "SUCCEEDED")
	if left := processesNamed(c.t, c.name); len(left) > 0 {
		c.t.Errorf("processes of ended jobs: got %v, want none", left)
	}
	if n := len(worker.runners()); n != 1 {
		c.t.Errorf("got %d runners, want one", n)
	}
}

// processesNamed returns the processes whose environment has the name of the job.
func processesNamed(t *testing.T, name string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "\x00MUSTER_JOB_NAME="+name+"\x00") {
			found = append(found, path)
		}
	}
	return found
}
