//go:build e2e

package e2e

// Many hosts with a task each. There are more hosts than a daemon keeps sessions with by default. No task is lost when
// a daemon is killed.

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	// shortLease is the shortest lease of a job. A task is ended if its host has had no contact with its owner for that
	// time.
	shortLease = job.MinLease
	// startup bounds the start of many daemons on a small machine.
	startup = 5 * time.Minute
	// few is how many daemons are started at a time.
	few = 4
)

// crowd is one daemon that owns a task on each of many hosts.
type crowd struct {
	t     *testing.T
	owner *daemon
	hosts []*daemon
	ids   []string
	begun map[string]int // attempts of each job that had begun when all were running
	pids  map[string]int // the main process of each job at that time
	dir   string         // where each attempt writes its number and pid, by job
	gate  gate           // the gate at which all tasks wait
	ask   http.Client    // client of the owner's API
}

// newCrowd starts the hosts, and then the owner, which runs no tasks itself.
func newCrowd(t *testing.T, hosts int, args ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, begun: map[string]int{}, pids: map[string]int{}, dir: t.TempDir(), gate: newGate(t)}
	args = append(args, "--gpus", "none", "--cpus", "2", "--log-level", "info")
	for i := range hosts {
		name := fmt.Sprintf("host%d", i)
		c.hosts = append(c.hosts, newDaemon(t, name, append(args, "--label", "at="+name)...))
	}
	c.owner = newDaemon(t, "owner", append(args, "--no-worker")...)
	c.ask.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.owner.socket)
	}}
	inv := c.hosts[0].start().invite("--uses", strconv.Itoa(hosts))
	startAll(c.hosts[1:], inv.flags()...)
	c.owner.start(inv.flags()...)
	return c
}

// startAll starts daemons, few at a time.
func startAll(all []*daemon, more ...string) {
	for len(all) > 0 {
		now := all[:min(few, len(all))]
		all = all[len(now):]
		from := make([]int, len(now))
		for i, d := range now {
			from[i] = d.launch(more...)
		}
		for i, d := range now {
			d.waitLog(from[i], "ready")
		}
	}
}

// load submits a task for each host, and waits until all run. Each job names its host by a label, so that the owner
// must find the host.
func (c *crowd) load() {
	c.t.Helper()
	spec := job.DefaultSpec()
	spec.Name, spec.Lease = "stays", job.Duration(shortLease)
	spec.Command = []string{"sh", "-c", fmt.Sprintf("echo $MUSTER_ATTEMPT >>%s/$MUSTER_JOB_ID; read line <%s; exit 0", c.dir, c.gate.path)}
	file := filepath.Join(c.t.TempDir(), "job.json")
	for _, h := range c.hosts {
		spec.Constraint = "at=" + h.name
		text, err := json.Marshal(spec)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		untilRight(c.t, startup, func() string { // the owner would refuse a job for a host that it does not know yet
			r := c.owner.muster("submit", "--idempotency-key", h.name, "-F", file)
			if r.code != 0 {
				return r.stderr
			}
			c.ids = append(c.ids, strings.TrimSpace(r.stdout))
			return ""
		})
	}
	untilRight(c.t, startup, c.settled)
	twice := 0
	for _, id := range c.ids {
		if c.begun[id] = len(c.attempts(id)); c.begun[id] > 1 {
			twice++
		}
		c.pids[id] = c.job(id).Tasks[0].PID
	}
	c.t.Logf("all run; %d of them began more than once", twice)
}

// job returns the owner's document of a job. A verb would need a process, and a listing a request to every host.
func (c *crowd) job(id string) api.Job {
	c.t.Helper()
	var doc api.Job
	r, err := c.ask.Get("http://owner/v1/jobs/" + id)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&doc); err != nil || len(doc.Tasks) != 1 {
		c.t.Fatalf("job %s at its owner: status %d, %v: got %+v, want one task", id, r.StatusCode, err, doc)
	}
	return doc
}

// attempts returns the numbers that the attempts of a task have written.
func (c *crowd) attempts(id string) []int {
	text, _ := os.ReadFile(filepath.Join(c.dir, id)) // there is no file before the first attempt
	var all []int
	for line := range strings.Lines(string(text)) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// settled returns what is wrong until all tasks run, each with a living process.
func (c *crowd) settled() string {
	c.t.Helper()
	n := 0
	for _, id := range c.ids {
		if j := c.job(id); j.State == "RUNNING" && len(c.attempts(id)) > 0 && j.Tasks[0].PID > 0 && alive(j.Tasks[0].PID) {
			n++
		}
	}
	if n == len(c.ids) {
		return ""
	}
	return fmt.Sprintf("%d of %d tasks run", n, len(c.ids))
}

// lost counts the tasks that no longer run as they did when all had settled.
func (c *crowd) lost() int {
	n := 0
	for _, id := range c.ids {
		if len(c.attempts(id)) != c.begun[id] || !alive(c.pids[id]) {
			n++
		}
	}
	return n
}

// wrong returns what is wrong afterwards: no task may be lost, and the owner must be in contact with all.
func (c *crowd) wrong() string {
	c.t.Helper()
	seen := map[string]int{}
	for _, id := range c.ids {
		j := c.job(id)
		word := string(j.State)
		if all := c.attempts(id); j.Tasks[0].Attempt != all[c.begun[id]-1] {
			word += " in another attempt"
		}
		seen[word]++
	}
	lost := c.lost()
	if lost == 0 && seen["RUNNING"] == len(c.ids) {
		return ""
	}
	return fmt.Sprintf("of %d tasks %d are lost; the owner shows %v", len(c.ids), lost, seen)
}

// ownerDies kills the owner's daemon and starts it again after a while.
func (c *crowd) ownerDies() {
	c.t.Helper()
	c.owner.kill()
	time.Sleep(2 * time.Second) // how long the owner is away, not a wait for a condition
	c.owner.start()
}

func (c *crowd) end() {
	c.t.Helper()
	if n := c.lost(); n > 0 {
		c.t.Errorf("%d of %d tasks are lost, want 0", n, len(c.ids))
	}
	c.gate.open()
	untilRight(c.t, startup, func() string {
		n := 0
		for _, id := range c.ids {
			if c.job(id).State == "SUCCEEDED" {
				n++
			}
		}
		if n == len(c.ids) {
			return ""
		}
		return fmt.Sprintf("%d of %d jobs have succeeded", n, len(c.ids))
	})
	for _, id := range c.ids {
		if all := c.attempts(id); len(all) != c.begun[id] {
			c.t.Errorf("job %s: got attempts %v, want %d", id, all, c.begun[id])
		}
	}
}

// untilContact waits until the owner is in contact with all tasks.
func (c *crowd) untilContact() {
	c.t.Helper()
	untilRight(c.t, 2*shortLease, c.wrong)
}

// TestManyHostsKeepContactAfterRestarts checks that neither an owner nor a host that restarts loses contact, although
// there are more hosts than a daemon keeps sessions with by default.
func TestManyHostsKeepContactAfterRestarts(t *testing.T) {
	c := newCrowd(t, 40)
	c.load()
	c.ownerDies()
	c.untilContact()
	for some := range slices.Chunk(c.hosts[len(c.hosts)-8:], few) { // if all started at once, the last would be away for longer than a lease
		for _, h := range some {
			h.kill()
		}
		startAll(some)
	}
	c.untilContact()
	c.end()
}

// TestHundredDaemonsKeepContactAfterRestarts does the same with a hundred daemons. Each of them is killed in turn. The
// test takes longer than a lease lasts without renewals.
func TestHundredDaemonsKeepContactAfterRestarts(t *testing.T) {
	atFullSize(t)
	c := newCrowd(t, 99)
	c.load()
	c.ownerDies()
	c.untilContact()
	checkFor(t, shortLease+15*time.Second, c.wrong)
	for _, h := range c.hosts {
		h.kill()
		h.start()
	}
	c.untilContact()
	checkFor(t, shortLease+15*time.Second, c.wrong)
	c.end()
}
