//go:build e2e

package e2e

// Jobs that depend on others, of the same owner and of another one.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// diary is a file to which jobs append their names, in the order in which they run.
type diary struct {
	t    *testing.T
	path string
}

func newDiary(t *testing.T) diary {
	t.Helper()
	return diary{t, filepath.Join(t.TempDir(), "diary")}
}

func (d diary) command(name string) []string {
	return []string{"--", "sh", "-c", "echo " + name + " >> " + d.path}
}

func (d diary) read() string {
	d.t.Helper()
	text, err := os.ReadFile(d.path)
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

func waitsFor(word string) func(api.Job) bool {
	return func(j api.Job) bool { return j.State == "PENDING" && j.Reason == word }
}

func TestChainOfJobsRunsInOrder(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	g, d := newGate(t), newDiary(t)
	first := amy.ok(append([]string{"submit"}, append([]string{"--"}, g.script("echo first >> "+d.path)...)...)...)
	second := amy.ok(append([]string{"submit", "-d", "afterok:" + first[:6]}, d.command("second")...)...)
	third := amy.ok(append([]string{"submit", "-d", "afterok:last"}, d.command("third")...)...)
	doc := ben.until(third, "waiting for the second", waitsFor("Dependency"))
	if len(doc.Dependencies) != 1 || string(doc.Dependencies[0].Job) != second || doc.Dependencies[0].State != "waiting" || !strings.Contains(doc.ReasonDetail, second) {
		t.Errorf("the third depends on %+v: got %s, want that it waits for the second", doc.Dependencies, doc.ReasonDetail)
	}
	if text := ben.ok("show", second) + ben.ok("why", second); strings.Count(text, "afterok:"+first+" waiting") != 2 {
		t.Errorf("show and why: want that the second waits, got\n%s", text)
	}
	g.open()
	amy.untilState(third, "SUCCEEDED")
	if got := d.read(); got != "first second third" {
		t.Errorf("order: got %s, want %q", got, "first second third")
	}
	if doc := amy.show(third); doc.Dependencies[0].State != "met" {
		t.Errorf("at the end it depends on %+v, want met", doc.Dependencies)
	}
	amy.fails(2, []string{"there is no such job"}, "submit", "-d", "afterok:"+strings.Repeat("0", 10)+first[10:], "--", "true")
	ben.fails(2, []string{"there is no such job"}, "submit", "-d", "afterok:"+strings.Repeat("0", 10)+first[10:], "--", "true")
}

func TestDiamondOverTwoOwnersRunsInOrder(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	g, d := newGate(t), newDiary(t)
	top := amy.ok(append([]string{"submit", "--"}, g.script("echo top >> "+d.path)...)...)
	left := ben.ok(append([]string{"submit", "-d", "afterok:" + top}, d.command("side")...)...)
	right := amy.ok(append([]string{"submit", "-d", "afterok:" + top}, d.command("side")...)...)
	bottom := ben.ok(append([]string{"submit", "-d", "afterok:" + left + ",afterok:" + right}, d.command("bottom")...)...)
	begun := ben.ok(append([]string{"submit", "-d", "after:" + top}, d.command("begun")...)...)
	cat.untilState(begun, "SUCCEEDED")
	cat.until(bottom, "waiting", waitsFor("Dependency"))
	doc := cat.until(left, "waiting for a job that runs", func(j api.Job) bool { return strings.Contains(j.ReasonDetail, top+" is RUNNING") })
	if doc.Owner == cat.show(top).Owner {
		t.Fatal("all have the same owner")
	}
	g.open()
	cat.untilState(bottom, "SUCCEEDED")
	if got := d.read(); got != "begun top side side bottom" {
		t.Errorf("order: got %s, want %q", got, "begun top side side bottom")
	}
}

func TestFailedParentHoldsOrCancelsItsChildren(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	g, d := newGate(t), newDiary(t)
	bad := amy.ok(append([]string{"submit", "--"}, g.script("exit 3")...)...)
	stays := map[string]*daemon{}
	for _, at := range []*daemon{amy, ben} {
		stays[at.ok(append([]string{"submit", "-d", "afterok:" + bad}, d.command("never")...)...)] = at
	}
	killed := ben.ok(append([]string{"submit", "--kill-on-invalid-dep", "-d", "afterok:" + bad}, d.command("never")...)...)
	after := amy.ok(append([]string{"submit", "-d", "afternotok:" + killed + ",afternotok:" + bad}, d.command("mourns")...)...)
	either := ben.ok(append([]string{"submit", "-d", "afterok:" + bad + "?afterany:" + bad}, d.command("either")...)...)
	held := amy.ok(append([]string{"submit", "--hold", "-d", "afterany:" + bad}, d.command("held")...)...)
	g.open()
	for id, at := range stays {
		doc := at.until(id, "never satisfied", waitsFor("DependencyNeverSatisfied"))
		if !strings.Contains(doc.ReasonDetail, bad+": it is FAILED") {
			t.Errorf("reason: got %s, want that the parent is FAILED", doc.ReasonDetail)
		}
	}
	if doc := amy.untilState(killed, "CANCELLED"); !strings.Contains(doc.Reason, "can never be met") {
		t.Errorf("reason of the cancelled one: got %s, want that it can never be met", doc.Reason)
	}
	amy.untilState(after, "SUCCEEDED")
	amy.untilState(either, "SUCCEEDED")
	amy.untilState(held, "HELD")
	amy.ok("release", held)
	amy.untilState(held, "SUCCEEDED")
	for id := range stays {
		amy.ok("cancel", id)
		amy.untilState(id, "CANCELLED")
	}
	if got := d.read(); strings.Contains(got, "never") {
		t.Errorf("order: got %s, want none after the failed parent", got)
	}
}

// Whichever of the two owners restarts, and whenever, the child runs after its parent and never before.
func TestDependencySurvivesRestartsOfOwners(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	d := newDiary(t)
	pair := func(name string) (g gate, parent, child string) {
		g = newGate(t)
		parent = amy.ok(append([]string{"submit", "-w", "cat", "--"}, g.script("echo "+name+" >> "+d.path)...)...)
		child = ben.ok(append([]string{"submit", "-w", "cat", "-d", "afterok:" + parent}, d.command("after-"+name)...)...)
		amy.untilState(parent, "RUNNING")
		ben.until(child, "waiting", waitsFor("Dependency"))
		return g, parent, child
	}

	g, _, child := pair("one") // the owner of the child restarts while the parent runs
	ben.kill()
	ben.start()
	cat.until(child, "waiting", waitsFor("Dependency"))
	g.open()
	cat.untilState(child, "SUCCEEDED")

	g, parent, child := pair("two") // the parent ends while the owner of the child is down
	ben.kill()
	g.open()
	cat.untilState(parent, "SUCCEEDED")
	ben.start()
	cat.untilState(child, "SUCCEEDED")

	g, _, child = pair("three") // the parent ends while its own owner is down
	amy.kill()
	g.open()
	doc := ben.until(child, "waiting for an owner that is silent", func(j api.Job) bool {
		return waitsFor("Dependency")(j) && strings.Contains(j.ReasonDetail, "amy does not answer")
	})
	if len(doc.Dependencies) != 1 || doc.Dependencies[0].State != "waiting" {
		t.Errorf("it depends on %+v, want waiting", doc.Dependencies)
	}
	amy.start()
	ben.untilState(child, "SUCCEEDED")

	g, parent, child = pair("four") // the owner of the child restarts, and the child goes on waiting
	amy.kill()
	amy.start()
	amy.untilState(parent, "RUNNING")
	g.open()
	ben.untilState(child, "SUCCEEDED")

	ben.kill() // a dependency that was met stays met
	ben.start()
	if doc := cat.untilState(child, "SUCCEEDED"); doc.Dependencies[0].State != "met" {
		t.Errorf("after a restart it depends on %+v, want met", doc.Dependencies)
	}
	if got := d.read(); got != "one after-one two after-two three after-three four after-four" {
		t.Errorf("order: got %s, want %q", got, "one after-one two after-two three after-three four after-four")
	}
}

// Each element of an array runs after the same element of another array, whichever daemon owns that.
func TestElementsRunAfterTheirCounterparts(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	dir := t.TempDir()
	submit := func(at *daemon, array, script, more string) string {
		path := filepath.Join(dir, "job.yaml")
		text := fmt.Sprintf("command: [sh, -c, %q]\narray: %s\nresources: {cpus: 1}\n%s", script, array, more)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at.ok("submit", "-F", path)
	}
	const n = 1000
	every := fmt.Sprintf("0-%d", n-1)
	marks := filepath.Join(dir, "marks")
	if err := os.Mkdir(marks, 0o777); err != nil {
		t.Fatal(err)
	}
	parent := submit(amy, every, "touch "+marks+"/$MUSTER_TASK", "hold: true\n")
	follow := fmt.Sprintf("dependency: ['aftercorr:%s']\n", parent)
	children := map[string]*daemon{
		submit(amy, every, "test -e "+marks+"/$MUSTER_TASK", follow): amy,
		submit(ben, every, "test -e "+marks+"/$MUSTER_TASK", follow): ben,
	}
	beyond := submit(ben, "998-1001", "test -e "+marks+"/998", follow+"kill_on_invalid_dep: true\n")
	amy.ok("release", parent)
	state := func(at *daemon, id string) (doc api.Job) {
		if err := json.Unmarshal([]byte(at.ok("show", id, "--json")), &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	untilRight(t, 5*time.Minute, func() string {
		for id, at := range children {
			doc := state(at, id)
			if doc.State == "FAILED" {
				t.Fatalf("an element ran before its counterpart: %+v", doc.Dependencies)
			}
			if doc.State != "SUCCEEDED" {
				return fmt.Sprintf("%s is %s: %+v", id, doc.State, doc.Dependencies)
			}
		}
		return ""
	})
	if files, err := os.ReadDir(marks); err != nil || len(files) != n {
		t.Errorf("%d elements have run: got %v, want %d", len(files), err, n)
	}
	untilRight(t, time.Minute, func() string {
		doc := state(ben, beyond)
		if len(doc.Tasks) != 4 || doc.Tasks[0].State != "SUCCEEDED" || doc.Tasks[3].State != "CANCELLED" {
			return fmt.Sprintf("elements without a counterpart: %+v", doc.Tasks)
		}
		return ""
	})
}

func TestJobFileWithSeveralJobsRunsInOrder(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	d := newDiary(t)
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	text := ""
	for _, j := range []struct{ name, depends string }{{"report", "afterok:left:right"}, {"left", "afterok:prepare"}, {"right", "afterok:prepare"}, {"prepare", ""}} {
		text += fmt.Sprintf("---\nname: %s\ncommand: [sh, -c, 'echo %s >> %s']\n", j.name, strings.NewReplacer("left", "side", "right", "side").Replace(j.name), d.path)
		if j.depends != "" {
			text += "dependency: ['" + j.depends + "']\n"
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := strings.Fields(amy.ok("submit", "-F", path, "--idempotency-key", "k", "-W"))
	if len(ids) != 4 {
		t.Fatalf("got ids %v, want 4", ids)
	}
	if doc := ben.show(ids[0]); doc.Name != "report" || doc.State != "SUCCEEDED" || len(doc.Dependencies) != 2 {
		t.Errorf("the first is %+v, want report, succeeded, with 2 dependencies", doc)
	}
	if got := d.read(); got != "prepare side side report" {
		t.Errorf("order: got %s, want %q", got, "prepare side side report")
	}
	if again := strings.Fields(amy.ok("submit", "-F", path, "--idempotency-key", "k")); strings.Join(again, " ") != strings.Join(ids, " ") {
		t.Errorf("submitted again: got %v, want %v", again, ids)
	}
}
