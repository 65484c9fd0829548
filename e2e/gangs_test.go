//go:build e2e

package e2e

// Gangs: tasks of one job that run on several hosts at once, start together and end together.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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
	"github.com/musterhq/muster/job"
)

// allRun reports whether each task of a job runs and has reported its process.
func allRun(j api.Job) bool {
	return j.TaskCount > 0 && len(j.Tasks) == j.TaskCount && !slices.ContainsFunc(j.Tasks, func(t api.Task) bool { return t.State != job.Running || t.PID == 0 })
}

// onLoopback starts n daemons with one CPU each.
func onLoopback(t *testing.T, n int) []*daemon {
	t.Helper()
	var all []*daemon
	var joins []string
	for i := range n {
		d := newDaemon(t, fmt.Sprintf("n%d", i+1), "--gpus", "none", "--cpus", "1").start(joins...)
		if all = append(all, d); i == 0 {
			joins = d.invite("--uses", strconv.Itoa(n)).flags()
		}
	}
	for _, d := range all {
		d.untilNodes(n)
	}
	return all
}

// Three hosts with different addresses meet at the address and port of rank 0.
func TestGangMeetsAtRankZero(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "rendezvous")
	if out, err := exec.Command("go", "build", "-o", program, "./testdata/rendezvous").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l := newLab(t, 3)
	n1 := l.daemons(3, "--gpus", "none", "--cpus", "1")[0]
	r := n1.muster("run", "-N", "3", "--ntasks-per-node", "2", "--", "sh", "-c", program+` && echo "$MUSTER_NODE_IPS" | tr "\n" " " && tr "\n" ";" < "$MUSTER_HOSTFILE"`)
	if r.code != 0 {
		t.Fatalf("exit %d, want 0\n%s%s", r.code, r.stdout, r.stderr)
	}
	met := map[string][]string{}
	for line := range strings.Lines(r.stdout) {
		rank, text, _ := strings.Cut(strings.TrimSpace(line), "| ")
		met[rank] = append(met[rank], text)
	}
	if len(met["0"]) != 2 {
		t.Fatalf("met %q, want 2 ranks at rank 0", met)
	}
	addresses := strings.Fields(strings.TrimPrefix(met["0"][0], "world 3, rank 0, processes 2: "))
	if sorted := slices.Sorted(slices.Values(addresses)); !slices.Equal(sorted, []string{l.address(0), l.address(1), l.address(2)}) {
		t.Fatalf("met %q, want %q", met, []string{l.address(0), l.address(1), l.address(2)})
	}
	all := strings.Join(addresses, " ")
	for rank := range 3 {
		want := []string{
			fmt.Sprintf("world 3, rank %d, processes 2: %s", rank, all),
			all + " " + strings.Join(addresses, " slots=2;") + " slots=2;",
		}
		if got := met[strconv.Itoa(rank)]; !slices.Equal(got, want) {
			t.Errorf("rank %d: got %q, want %q", rank, got, want)
		}
	}
}

// Members in containers meet as well, at the same address and port: a gang has the network of its hosts.
func TestGangOfContainersMeetsAtRankZero(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "1", "--docker-host", e.host).start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--cpus", "1", "--docker-host", e.host).start(amy.invite().flags()...)
	amy.untilNodes(2)
	ben.untilNodes(2)
	script := `if [ $MUSTER_NODE_RANK = 0 ]; then echo met rank 0 of $MUSTER_NUM_NODES | nc -l -p $MASTER_PORT; else until nc $MASTER_ADDR $MASTER_PORT; do sleep 0.05; done; fi`
	r := ben.muster("run", "-N", "2", "-t", "1m", "--image", busyImage, "--", "sh", "-c", script)
	if r.code != 0 || r.stdout != "1| met rank 0 of 2\n" {
		t.Errorf("exit %d: got %q, want 0 and rank 1\n%s", r.code, r.stdout, r.stderr)
	}
}

// mpiScript is the script of the manual.
func mpiScript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "#!/bin/sh\n#MUSTER --nodes 3"
	_, rest, found := strings.Cut(string(text), "```sh\n"+head)
	script, _, ends := strings.Cut(rest, "\n```\n")
	if !found || !ends {
		t.Fatal("the manual has no script for mpirun")
	}
	path := filepath.Join(t.TempDir(), "mpi.sh")
	write(t, path, head+script+"\n")
	return path
}

// mpirun starts a program of two processes on each of three hosts, with the host file and through muster exec.
func TestGangRunsMPI(t *testing.T) {
	t.Parallel()
	needtest.MPI(t)
	program := filepath.Join(t.TempDir(), "sum")
	if out, err := exec.Command("mpicc", "-o", program, "testdata/mpi/sum.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l := newLab(t, 3)
	n := l.daemons(3, "--gpus", "none", "--cpus", "2")
	// The sockets are on a file system that all hosts see, so that one of them suffices for all.
	r := n[1].muster("run", "--env", "MUSTER_SOCKET="+n[1].socket, "--env", "PROGRAM="+program,
		"--env", "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"),
		"--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", mpiScript(t))
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	slices.Sort(lines)
	var want []string
	for i := range 6 {
		want = append(want, fmt.Sprintf("0| process %d of 6, sum 15", i))
	}
	if r.code != 0 || !slices.Equal(lines, want) {
		t.Fatalf("exit %d, want 0\n%s\nwant %q\n%s", r.code, r.stdout, want, r.stderr)
	}
	t.Logf("%d processes on 3 hosts in %s", len(lines), r.took)
}

// A member that is killed ends the gang, and the reason of each task names that member.
func TestKilledMemberEndsTheGang(t *testing.T) {
	t.Parallel()
	n := onLoopback(t, 3)
	id := n[0].ok("submit", "-N", "3", "sleep", "1000")
	doc := n[1].untilDoc(id, "running everywhere", allRun)
	pids := []int{doc.Tasks[0].PID, doc.Tasks[1].PID, doc.Tasks[2].PID}
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cause := fmt.Sprintf("rank 1 on %s: ended by signal 9 (SIGKILL)", doc.Tasks[1].Node)
	r := n[2].muster("wait", id)
	if r.code != 137 || !strings.Contains(r.stderr, cause) {
		t.Errorf("wait: exit %d, %s; want 137 and %q", r.code, r.stderr, cause)
	}
	doc = n[0].doc(id)
	if doc.State != job.Failed || doc.Reason != cause || doc.Tasks[1].State != job.Failed {
		t.Errorf("got %s (%s), rank 1 %s, want FAILED (%s), FAILED", doc.State, doc.Reason, doc.Tasks[1].State, cause)
	}
	for _, rank := range []int{0, 2} {
		if x := doc.Tasks[rank]; x.State != job.Cancelled || x.Reason != job.ReasonGangEnded || x.ReasonDetail != cause {
			t.Errorf("rank %d is %s: got %s: %s; want it CANCELLED: %s", rank, x.State, x.Reason, x.ReasonDetail, cause)
		}
		untilGone(t, pids[rank])
	}
	t.Logf("show:\n%s", n[0].ok("show", id))
}

// With --kill-on-bad-exit=no each rank ends by itself, and the highest exit code counts.
func TestGangGoesOnWithoutKillOnBadExit(t *testing.T) {
	t.Parallel()
	n := onLoopback(t, 3)
	id := n[0].ok("submit", "-N", "3", "--kill-on-bad-exit=no", "--", "sh", "-c", "exit $((MUSTER_NODE_RANK * 3))")
	if r := n[1].muster("wait", id); r.code != 6 {
		t.Errorf("exit %d, want the highest, 6: %s", r.code, r.stderr)
	}
	for rank, x := range n[2].doc(id).Tasks {
		if x.ExitCode == nil || *x.ExitCode != 3*rank || x.State == job.Cancelled {
			t.Errorf("rank %d is %s (%s), want exit code %d", rank, x.State, x.Reason, 3*rank)
		}
	}
	if r := n[0].muster("wait", id+".1"); r.code != 3 {
		t.Errorf("wait for rank 1: exit %d, want 3: %s", r.code, r.stderr)
	}
}

// A lost host takes the whole gang with it, which then runs on the remaining hosts.
func TestGangOfALostHostRunsAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, 4)
	n := l.daemons(4, "--gpus", "none", "--cpus", "1")
	starts := filepath.Join(t.TempDir(), "starts")
	file := filepath.Join(t.TempDir(), "job.yaml")
	write(t, file, fmt.Sprintf("nodes: 3\nlease: %s\ncommand: [sh, -c, 'echo $MUSTER_ATTEMPT.$MUSTER_NODE_RANK >> %s; [ $MUSTER_ATTEMPT -gt 1 ] || exec sleep 1000']\n", job.MinLease, starts))
	n[0].ok("node", "drain", "n1") // the owner runs none of the tasks, because its host must not be the lost one
	id := n[0].ok("submit", "-F", file)
	doc := n[0].untilDoc(id, "running everywhere", allRun)
	n[0].ok("node", "resume", "n1")
	lost := doc.Tasks[2].Node
	l.unplug(slices.IndexFunc(n, func(d *daemon) bool { return d.name == lost }))
	start := time.Now()
	untilRight(t, 2*job.MinLease+patience, func() string {
		if doc = n[0].doc(id); doc.Ended() {
			return ""
		}
		return fmt.Sprintf("%s (%s)", doc.State, doc.Reason)
	})
	t.Logf("ended %s after the loss", time.Since(start).Round(time.Second))
	if doc.State != job.Succeeded {
		t.Fatalf("got %s: %s, want SUCCEEDED", doc.State, doc.Reason)
	}
	for rank, x := range doc.Tasks {
		if x.Attempt != 2 || x.Node == lost || x.Rank != rank {
			t.Errorf("rank %d ran as attempt %d on %s, want 2, on another host than the lost one", rank, x.Attempt, x.Node)
		}
	}
	text, err := os.ReadFile(starts)
	got := strings.Fields(string(text))
	slices.Sort(got)
	if err != nil || !slices.Equal(got, []string{"1.0", "1.1", "1.2", "2.0", "2.1", "2.2"}) {
		t.Errorf("the ranks started as %q, %v, want 1.0 to 1.2 and 2.0 to 2.2", got, err)
	}
}

// gangsEach returns how many gangs each of two daemons submits.
func gangsEach() int {
	if os.Getenv("MUSTER_E2E_FULL") != "" {
		return 50
	}
	return 15
}

// untilAllEnded polls twice a second until each job has ended. The test fails after some time, or if none has ended for
// as long as the patience. Then it logs what the daemons know of the other jobs.
func untilAllEnded(d *daemon, all []*daemon, within time.Duration) {
	d.t.Helper()
	start, moved, least := time.Now(), time.Now(), -1
	untilRight(d.t, 2*within, func() string {
		var l api.Listing[api.Job]
		if err := json.Unmarshal([]byte(d.ok("jobs", "--json")), &l); err != nil {
			d.t.Fatal(err)
		}
		left := len(l.Items)
		if left < least || least < 0 {
			moved, least = time.Now(), left
		}
		if left == 0 {
			return ""
		}
		if time.Since(moved) < patience && time.Since(start) < within {
			return fmt.Sprintf("%d jobs have not ended", left)
		}
		for _, d := range all {
			d.logOutput("jobs")
			d.logOutput("nodes")
		}
		for _, j := range l.Items[max(0, left-6):] { // the last are the oldest
			d.logOutput("why", string(j.ID))
			d.logOutput("show", string(j.ID))
		}
		d.t.Fatalf("%d jobs have not ended after %s; the last one ended %s ago", left, time.Since(start).Round(time.Second), time.Since(moved).Round(time.Second))
		return ""
	})
}

// logOutput logs what a verb prints.
func (d *daemon) logOutput(args ...string) {
	d.t.Helper()
	r := d.muster(args...)
	d.t.Logf("muster %s at %s: exit %d\n%s%s", strings.Join(args, " "), d.name, r.code, r.stdout, r.stderr)
}

// Gangs of two owners all start in the end, on a cluster that holds one of them, or two of the smallest.
func TestGangsOfTwoOwnersAllStart(t *testing.T) {
	n := onLoopback(t, 4)
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	each := gangsEach()
	ids := map[*daemon][]string{}
	for range each {
		for _, d := range n[:2] {
			ids[d] = append(ids[d], d.ok("submit", "--hold", "-N", strconv.Itoa(2+chance.IntN(3)), "--", "sleep", "0.05"))
		}
	}
	start := time.Now()
	n[2].ok("release", "all")
	released := time.Since(start)
	var longest time.Duration
	for d, all := range ids {
		untilAllEnded(d, n, time.Duration(each)*4*time.Second)
		for _, id := range all {
			j := d.doc(id)
			if j.State != job.Succeeded || j.StartedAt == nil {
				t.Errorf("gang %s is %s: got %s, want SUCCEEDED", id, j.State, j.Reason)
				continue
			}
			longest = max(longest, j.StartedAt.Sub(start))
		}
	}
	t.Logf("%d gangs of 2 to 4, released within %s, ended after %s; the longest wait was %s", 2*each, released.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), longest.Round(time.Millisecond))
}

// The tasks of an array of gangs are named by index and rank, and each gang is complete.
func TestArrayOfGangsIsNamedByIndexAndRank(t *testing.T) {
	t.Parallel()
	n := onLoopback(t, 3)
	id := n[0].ok("submit", "-a", "5,9", "-N", "2", "--", "sh", "-c", `echo "$MUSTER_ARRAY_INDEX $MUSTER_NODE_RANK of $MUSTER_NUM_NODES"; exit $((MUSTER_ARRAY_INDEX == 9 && MUSTER_NODE_RANK == 1))`)
	if r := n[1].muster("wait", id); r.code != 1 {
		t.Fatalf("exit %d, want 1: %s", r.code, r.stderr)
	}
	if got, want := n[1].ok("logs", "--all", id+".5"), "5.0| 5 0 of 2\n5.1| 5 1 of 2"; got != want {
		t.Errorf("the output of gang 5: got %q, want %q", got, want)
	}
	dir := t.TempDir()
	named := n[0].ok("submit", "-a", "5,9", "-N", "2", "-o", dir+"/%a.%t.%3a", "--", "sh", "-c", "echo $MUSTER_ARRAY_INDEX $MUSTER_TASK")
	if r := n[1].muster("wait", named); r.code != 0 {
		t.Fatalf("exit %d, want 0: %s", r.code, r.stderr)
	}
	for name, want := range map[string]string{"5.10.005": "5 10\n", "5.11.005": "5 11\n", "9.18.009": "9 18\n", "9.19.009": "9 19\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != want {
			t.Errorf("%s: got %q, %v; want %q", name, text, err, want)
		}
	}
	if got, want := n[1].ok("logs", id+".9.1"), "9 1 of 2"; got != want {
		t.Errorf("the output of rank 1 of gang 9: got %q, want %q", got, want)
	}
	if r := n[2].muster("wait", id+".5"); r.code != 0 {
		t.Errorf("wait for gang 5: exit %d, want 0: %s", r.code, r.stderr)
	}
	if r := n[2].muster("wait", id+".9"); r.code != 1 {
		t.Errorf("wait for gang 9: exit %d, want 1: %s", r.code, r.stderr)
	}
	if r := n[2].muster("wait", id+".9.0"); r.code == 1 {
		t.Errorf("wait for rank 0 of gang 9: exit %d, want another than 1: %s", r.code, r.stderr)
	}
}
