package daemon

// The layers inside a package: its files have an order, and no file depends on a later one.

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// fileOrder lists the files of some packages in order. A file uses only what it or an earlier file declares.
var fileOrder = map[string]string{
	"worker": `
		bounds phase event config
		attempt freedby exit ledger gangports session report claims refusedattempts leases attempts lapses
		command reserve woundwait preempt drain availability offers start
		core restore worker`,
	"worker/admission": "bounds rota release offer forecast order gang queue keeps booking backfill arbitration passes",
	"scheduler": `
		clocks backoff phase gang policies queue holder electionpatience task dispatch retry leftout avoidedhosts waitlist
		entries files history hosts assigned sessions parents level shapeheap pending allotmentnews allotmentqueue allotments allotwhy placement attempts offers setasides elections dispatches unsent declines yielding gangoffers gangstart neighbours gangs plan reports
		explain reasons estimates away passedover views candidates listfilter renewals refusals requests forget declaredead resetbackoff overdue unrenewed maxfailures records fileready core sessionevents owner view queuestats settings step`,
	"scheduler/loop": `askers mailbox replies calls watch follow needs reader execute progress loop list requests`,
	"scheduler/step": `config event submitted totals turn`,
}

// acyclic lists the packages whose files may have any order. There is such an order if their dependencies form no
// cycle.
var acyclic = []string{
	"scheduler/fleet", "scheduler/place", "scheduler/policy", "api", "internal/daemon", "p2p", "cmd/muster", "worker/files", "worker/health", "worker/ledger", "worker/loop", "worker/resources", "worker/step", "worker/useraccounts", "internal/upload", "internal/store", "worker/runner", "worker/supervisor", "scheduler/state", "scheduler/journal", "internal/sim/report", "internal/sim/report/page",
}

// cycles lists the packages of acyclic that still have cycles. It says how many dependencies between files are part of
// a cycle, and why. The number may only be lowered. A package without cycles must be removed from the list.
var cycles = map[string]struct {
	dependencies int
	why          string
}{
	"api":               {533, "documents, client and server are one package"},
	"cmd/muster":        {334, "each verb uses the client and the tables of flags, which know the verbs"},
	"internal/daemon":   {156, "the parts of the daemon hold the daemon"},
	"internal/store":    {12, "the store holds its parts, which call back into it"},
	"internal/upload":   {28, "trees, packs and chunks of the store hold the store"},
	"p2p":               {185, "the host and the membership are one package"},
	"worker/files":      {7, "the driver holds the stages of a task's files, which call back into it"},
	"worker/runner":     {5, "the loop holds the state that begin and ends change, and calls them"},
	"worker/supervisor": {5, "Driver holds the supervised runners, which call back into it"},
	"scheduler/journal": {5, "Journal holds the queue and the Raft loop, which are methods on it"},
}

func TestLayoutInsidePackages(t *testing.T) {
	s := loadTree(t)
	for dir, order := range fileOrder {
		c, err := s.check(dir)
		if err != nil {
			t.Fatal(err)
		}
		place := map[string]int{}
		for i, name := range strings.Fields(order) {
			place[name+".go"] = i + 1
		}
		for _, name := range c.files {
			if place[name] == 0 {
				t.Errorf("%s/%s is missing in the order of the files", dir, name)
			}
		}
		for d, name := range s.dependencies(c) {
			if place[d.from] < place[d.to] {
				t.Errorf("%s: %s uses %s of %s, which comes later in the order", dir, d.from, name, d.to)
			}
		}
	}
}

func TestNoCyclesOfFiles(t *testing.T) {
	s := loadTree(t)
	for _, dir := range acyclic {
		c, err := s.check(dir)
		if err != nil {
			t.Fatal(err)
		}
		all := s.dependencies(c)
		bad := inCycles(slices.Collect(maps.Keys(all)))
		want := cycles[dir].dependencies
		switch {
		case len(bad) > want:
			for _, d := range bad {
				t.Logf("%s: %s uses %s of %s", dir, d.from, all[d], d.to)
			}
			t.Errorf("%s: %d dependencies between files are part of a cycle, at most %d are allowed", dir, len(bad), want)
		case len(bad) < want:
			t.Errorf("%s: only %d dependencies between files are part of a cycle: lower the %d in the list", dir, len(bad), want)
		}
	}
	for dir, c := range cycles {
		if c.dependencies == 0 || !slices.Contains(acyclic, dir) {
			t.Errorf("remove %s from the list of cycles", dir)
		}
	}
}

// inCycles returns the dependencies that are part of a cycle, sorted.
func inCycles(all []dependency) []dependency {
	next := map[string][]string{}
	for _, d := range all {
		next[d.from] = append(next[d.from], d.to)
	}
	reach := map[string]map[string]bool{} // the files that can be reached from a file
	for from := range next {
		seen := map[string]bool{}
		todo := slices.Clone(next[from])
		for len(todo) > 0 {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if !seen[at] {
				seen[at] = true
				todo = append(todo, next[at]...)
			}
		}
		reach[from] = seen
	}
	bad := slices.DeleteFunc(all, func(d dependency) bool { return !reach[d.to][d.from] })
	slices.SortFunc(bad, func(a, b dependency) int { return strings.Compare(a.from+" "+a.to, b.from+" "+b.to) })
	return bad
}

func TestCycleOfFilesIsFound(t *testing.T) {
	got := inCycles([]dependency{{"a", "b"}, {"b", "c"}, {"c", "b"}, {"c", "d"}, {"e", "a"}})
	if want := []dependency{{"b", "c"}, {"c", "b"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
