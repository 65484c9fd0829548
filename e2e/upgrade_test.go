//go:build e2e

package e2e

// A daemon on a data directory of the version before: its jobs go on, and new jobs belong to a group that it has
// founded.

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// The jobs of root in testdata/data-before.tar.gz, the database and the key of a daemon of the version before: one that
// ran, one that was submitted with the idempotency key "again", one that is held, and one that depends on it.
const (
	ranBefore   = "pa5wexchwf-a3m7p0nz1g5vg"
	keyedBefore = "ydf41t3kpv-a3m7p0nz1g5vg"
	heldBefore  = "4s48twbrhv-a3m7p0nz1g5vg"
	childBefore = "r7cbxawzgw-a3m7p0nz1g5vg"
)

// unpack gives a daemon that has never run the data directory in an archive of testdata.
func (d *daemon) unpack(archive string) *daemon {
	d.t.Helper()
	data := filepath.Join(d.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		d.t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", data, "-xzf", "testdata/"+archive).CombinedOutput(); err != nil {
		d.t.Fatalf("unpack: %v\n%s", err, out)
	}
	return d
}

// submitKeyed submits a job over HTTP with an idempotency key, and returns the answer.
func (d *daemon) submitKeyed(key, body string) string {
	d.t.Helper()
	client := d.http()
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, "http://daemon/v1/jobs", strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// TestDataDirectoryOfTheVersionBeforeWorks starts such a daemon twice. All verbs work on the earlier jobs and on new ones,
// also at another daemon, and jobs of the two groups depend on each other.
func TestDataDirectoryOfTheVersionBeforeWorks(t *testing.T) {
	t.Parallel()
	asRoot(t)
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").unpack("data-before.tar.gz").start()
	group := job.ID(amy.ok("submit", "--hold", "--", "true")).Group()
	if group.OfVersionBefore() || !job.ID(heldBefore).Group().OfVersionBefore() {
		t.Errorf("the group of new jobs is %s, want one of this version", group)
	}
	amy.kill()
	amy.start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--cpus", "4").start(amy.invite().flags()...)
	amy.untilNodes(2)
	after := amy.ok("submit", "-d", "afterok:"+heldBefore, "--", "echo", "after")
	if job.ID(after).Group() != group {
		t.Errorf("after a restart the group of new jobs is %s, want %s", job.ID(after).Group(), group)
	}
	for _, d := range []*daemon{amy, ben} {
		all := d.ok("jobs", "--all", "--jsonl")
		for _, id := range []string{ranBefore, keyedBefore, heldBefore, childBefore, after} {
			if strings.Count(all, `"id":"`+id+`"`) != 1 {
				t.Errorf("%s is not listed once at %s:\n%s", id, d.name, all)
			}
		}
		if j := d.show(ranBefore); j.State != job.Succeeded {
			t.Errorf("at %s %s is %s, want SUCCEEDED", d.name, ranBefore, j.State)
		}
	}
	if answer := amy.submitKeyed("again", `{"command":["true"],"name":"keyed"}`); !strings.Contains(answer, keyedBefore) {
		t.Errorf("with the key of an earlier job: got %s, want that job", answer)
	}
	if answer := amy.submitKeyed("again", `{"command":["false"]}`); !strings.Contains(answer, keyedBefore) || strings.Contains(answer, `"state"`) {
		t.Errorf("another job with that key: got %s, want an error with the earlier job", answer)
	}
	if answer := amy.submitKeyed("new", `{"command":["true"]}`); !strings.Contains(answer, group.String()) {
		t.Errorf("with a new key: got %s, want a job of the new group", answer)
	}

	waits := make(chan result, 2)
	for _, d := range []*daemon{amy, ben} {
		go func() { waits <- d.muster("wait", childBefore, after) }()
	}
	select {
	case r := <-waits:
		t.Fatalf("wait returned while the jobs wait: %+v", r)
	case <-time.NewTimer(time.Second).C:
	}
	ben.ok("release", heldBefore)
	for range 2 {
		if r := <-waits; r.code != 0 {
			t.Errorf("wait: got %+v, want exit code 0", r)
		}
	}
	if out := ben.ok("logs", heldBefore); out != "later" {
		t.Errorf("output of the earlier job: got %q, want %q", out, "later")
	}
	ben.ok("requeue", ranBefore)
	amy.untilState(ranBefore, "SUCCEEDED")
	// An earlier job runs on another host too, which accepts the proof of that time.
	amy.ok("node", "drain", "amy")
	amy.ok("requeue", keyedBefore)
	amy.until(keyedBefore, "its end on ben", func(j api.Job) bool { return j.State == job.Succeeded && j.Tasks[0].Node == "ben" })
	amy.ok("node", "resume", "amy")
	ben.untilState(ben.ok("submit", "-w", "amy", "--", "true"), "SUCCEEDED")
}

// TestDataDirectoryTwoVersionsBackIsRefused starts a daemon on jobs of a group that nothing proves. It says so in one
// line, and the data on disk stays unchanged.
func TestDataDirectoryTwoVersionsBackIsRefused(t *testing.T) {
	asRoot(t)
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none").unpack("db-drawn.tar.gz")
	for range 2 {
		from := amy.launch()
		<-amy.done
		if line := amy.waitLog(from, "jobs …-edqcwdpsz7fqj"); !containsAll(line, []string{"nothing in it was changed", "another data directory"}) {
			t.Errorf("got the line %q, want that nothing was changed, and what to do", line)
		}
	}
}
