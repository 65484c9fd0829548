//go:build e2e

package e2e

// The real side: a cluster of `muster dev`, the load on it, a host that dies, and what was seen of each task.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

// devCluster is a cluster that `muster dev` runs.
type devCluster struct {
	t       *testing.T
	sockets []string
	clients []*api.Client
	nodes   []api.Node // by the number of the daemon
	work    string     // the program of the tasks
	notes   string     // the directory of its notes
}

// newDevCluster starts a cluster, and waits until each daemon sees all others.
func newDevCluster(t *testing.T, hosts int) *devCluster {
	t.Helper()
	c := &devCluster{t: t, notes: t.TempDir()}
	c.work = filepath.Join(t.TempDir(), "work")
	if out, err := exec.Command("go", "build", "-o", c.work, "./testdata/truthtask").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(binary(t), "dev", "--nodes", strconv.Itoa(hosts), "--cpus", strconv.Itoa(truthCPUs), "--gpus", fmt.Sprintf("sim:%dxH100-80GB", truthGPUs))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); len(c.sockets) < hosts && lines.Scan(); {
		if _, socket, ready := strings.Cut(lines.Text(), " is ready: "); ready {
			c.sockets = append(c.sockets, socket)
		} else {
			t.Log(lines.Text())
		}
	}
	if len(c.sockets) < hosts {
		t.Fatalf("got %d ready daemons, want %d", len(c.sockets), hosts)
	}
	go func() { _, _ = bufio.NewReader(out).WriteTo(nowhere{}) }()
	for _, socket := range c.sockets {
		client, err := api.NewClient(api.ClientConfig{Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		c.clients = append(c.clients, client)
	}
	c.untilAllSeen()
	return c
}

// nowhere discards what is written.
type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// untilAllSeen waits until each daemon shows all nodes as ready.
func (c *devCluster) untilAllSeen() {
	c.t.Helper()
	for _, client := range c.clients {
		untilRight(c.t, patience, func() string {
			l, err := client.Nodes(c.t.Context())
			if err != nil {
				return err.Error()
			}
			ready := slices.DeleteFunc(l.Items, func(n api.Node) bool { return n.State != api.NodeReady || len(n.GPUs) != truthGPUs })
			if len(ready) < len(c.clients) {
				return fmt.Sprintf("%d of %d nodes are ready", len(ready), len(c.clients))
			}
			slices.SortFunc(ready, func(a, b api.Node) int { return numberOf(a.Name) - numberOf(b.Name) })
			c.nodes = ready
			return ""
		})
	}
}

// numberOf returns the number at the end of the name of a daemon, from 1 on.
func numberOf(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "dev"))
	return n
}

// machines returns the hosts in the form that a simulation takes.
func (c *devCluster) machines() []load.Machine {
	var all []load.Machine
	for _, n := range c.nodes {
		all = append(all, load.Machine{
			Name: n.Name, CPUs: 1000 * n.CPUs, Memory: job.Size(n.Memory), GPUs: len(n.GPUs), Model: n.GPUs[0].Model,
			DeviceMemory: job.Size(n.GPUs[0].Memory), Labels: n.Labels,
		})
	}
	return all
}

// submitted is a job as its user saw it.
type submitted struct {
	id    job.ID
	owner int           // number of the daemon, from 0 on
	at    time.Time     // when the request was made
	took  time.Duration // until the answer
	asked time.Duration // how long a request took right after it that changes nothing
}

// submit submits a job to a daemon.
func (c *devCluster) submit(ctx context.Context, owner int, x *load.Job) (submitted, error) {
	s := submitted{owner: owner, at: time.Now()}
	spec := x.Spec
	spec.Command = []string{c.work, c.notes, x.Runs.String()}
	j, err := c.clients[owner].Submit(ctx, spec, "")
	s.id, s.took = j.ID, time.Since(s.at)
	return s, err
}

// settled is for how long the daemons of a simulation have had their sessions when it begins. Renewals of leases are
// counted from then on, so the real daemons wait as long.
const settled = 8 * time.Second

// replay submits the jobs at their times, to the owners in turn, and kills a host. It returns the jobs, when all began,
// when the host died, and after how long each owner had noticed.
func (c *devCluster) replay(l *truthLoad, owners []int, victim int) (jobs []submitted, begun, died time.Time, notices times) {
	c.t.Helper()
	jobs = make([]submitted, len(l.jobs))
	time.Sleep(settled) // see there; not a wait for a condition
	begun = time.Now()
	failed := make(chan error, 1)
	go func() {
		for i := range l.jobs {
			time.Sleep(time.Until(begun.Add(l.jobs[i].Submit))) // a moment of the load, not a wait for a condition
			var err error
			if jobs[i], err = c.submit(c.t.Context(), owners[i%len(owners)], &l.jobs[i]); err != nil {
				failed <- fmt.Errorf("%s: %w", l.jobs[i].Name, err)
				return
			}
			start := time.Now()
			if _, err = c.clients[jobs[i].owner].Job(c.t.Context(), jobs[i].id); err != nil {
				failed <- fmt.Errorf("%s: %w", l.jobs[i].Name, err)
				return
			}
			jobs[i].asked = time.Since(start)
		}
		failed <- nil
	}()
	time.Sleep(time.Until(begun.Add(l.dies))) // likewise
	died = c.killHost(victim)
	notices = c.noticeTimes(owners, victim, died)
	if err := <-failed; err != nil {
		c.t.Fatal(err)
	}
	return jobs, begun, died, notices
}

// noticeTimes returns after how long each of the owners shows that a host is silent.
func (c *devCluster) noticeTimes(owners []int, host int, since time.Time) times {
	c.t.Helper()
	found := make(times, len(owners))
	eventually(c.t, "every owner has noticed that a host is silent", func() bool {
		for i, owner := range owners {
			all, err := c.clients[owner].Peers(c.t.Context())
			if err != nil {
				c.t.Fatal(err)
			}
			if found[i] == 0 && slices.ContainsFunc(all.Items, func(p api.Peer) bool { return p.ID == c.nodes[host].ID && p.State != api.NodeReady }) {
				found[i] = time.Since(since)
			}
		}
		return !slices.Contains(found, 0)
	})
	return found
}

// killHost kills all processes of a host at once, its daemon, its runner, and its tasks, and returns when.
func (c *devCluster) killHost(host int) time.Time {
	c.t.Helper()
	dir := strings.TrimSuffix(c.sockets[host], ".sock") // also the data directory
	var parents, tasks []int
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, _ := strconv.Atoi(filepath.Base(p))
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		at, _ := os.Readlink(filepath.Join(p, "cwd"))
		switch {
		case slices.Contains(strings.Split(string(line), "\x00"), dir), slices.Contains(strings.Split(string(line), "\x00"), dir+"/run"):
			parents = append(parents, pid)
		case strings.HasPrefix(at, dir+"/run/tasks/"):
			tasks = append(tasks, pid)
		}
	}
	if len(parents) != 3 {
		c.t.Errorf("%s has processes %v, want a daemon, a runner and its guard", dir, parents)
	}
	at := time.Now()
	for _, pid := range append(parents, tasks...) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	c.t.Logf("%s is killed with %d tasks", c.nodes[host].Name, len(tasks))
	return at
}

// untilEnded waits until the jobs have ended, and returns their documents.
func (c *devCluster) untilEnded(jobs []submitted, within time.Duration) []api.Job {
	c.t.Helper()
	docs := make([]api.Job, len(jobs))
	untilRight(c.t, within, func() string {
		left := 0
		for i, s := range jobs {
			if docs[i].Ended() {
				continue
			}
			j, err := c.clients[s.owner].Job(c.t.Context(), s.id)
			if err != nil {
				c.t.Fatal(err)
			}
			if docs[i] = j; !j.Ended() {
				if left++; left > 40 { // the others are checked next time
					break
				}
			}
		}
		if left == 0 {
			return ""
		}
		return fmt.Sprintf("%d jobs have not ended", left)
	})
	return docs
}

// note is what an attempt of a task has written when it began.
type note struct {
	at      time.Time
	machine int
	devices []int // indices
}

// noteOf returns the note of an attempt, and whether it has begun.
func (c *devCluster) noteOf(id job.ID, task, attempt int) (n note, begun bool) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.notes, fmt.Sprintf("%s.%d.%d", id, task, attempt)))
	if errors.Is(err, fs.ErrNotExist) {
		return n, false
	}
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) != 3 {
		c.t.Fatalf("note of %s.%d.%d: got %v, %q, want 3 lines", id, task, attempt, err, text)
	}
	n.at, err = time.Parse(time.RFC3339Nano, lines[0])
	n.machine = slices.IndexFunc(c.sockets, func(s string) bool { return strings.HasPrefix(lines[1], strings.TrimSuffix(s, ".sock")+"/") })
	if err != nil || n.machine < 0 {
		c.t.Fatalf("note of %s.%d.%d: got %v, %q, want its node", id, task, attempt, err, text)
	}
	for i, g := range c.nodes[n.machine].GPUs {
		if slices.Contains(strings.Split(lines[2], ","), g.UUID) {
			n.devices = append(n.devices, i)
		}
	}
	return n, true
}
