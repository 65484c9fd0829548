package node

// The layout inside large packages: their files have an order, and a file uses only files before it.

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// fileOrder lists the files of some packages. A file may use only its own declarations and those of files before it.
var fileOrder = map[string]string{
	"worker": `
		clock timer driver bounds phase
		eased quota breaker quarantine event config turn
		fault environment capacity account device mps pause health
		attempt exit ledger session report queue arbitration renew attempts
		command reserve drain gate offers start
		core restore parts execute loop worker`,
	"scheduler": `
		scheduler event turn avoid phase queue search task waitlist
		entries history hosts assigned contact pending placement attempts offers dispatches plan reports
		explain views renew requests deaths records core sessions owner look step
		mailbox replies calls watch needs reader execute loop list verbs`,
}

// anyOrder lists the packages whose files may have any order, but must not use each other in a cycle.
var anyOrder = []string{
	"scheduler/fleet", "scheduler/policy", "worker/runner", "worker/supervisor", "jobs", "journal",
}

// cycles lists the packages of anyOrder that still have cycles. arrows is the number of pairs of files in a cycle, of
// which the first uses the second. It must never grow. A package without cycles is removed from the list.
var cycles = map[string]struct {
	arrows int
	why    string
}{
	"worker/runner":     {5, "the loop holds the state that begin and ends change, and calls them"},
	"worker/supervisor": {5, "Driver holds the supervised runners, which call back into it"},
	"journal":           {5, "Journal holds the queue and the Raft loop, which are methods on it"},
}

func TestRooms(t *testing.T) {
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
				t.Errorf("%s/%s is not in fileOrder", dir, name)
			}
		}
		for a, name := range s.arrows(c) {
			if place[a.from] < place[a.to] {
				t.Errorf("%s: %s uses %s of %s, which comes later in fileOrder", dir, a.from, name, a.to)
			}
		}
	}
}

func TestNoCyclesOfFiles(t *testing.T) {
	s := loadTree(t)
	for _, dir := range anyOrder {
		c, err := s.check(dir)
		if err != nil {
			t.Fatal(err)
		}
		all := s.arrows(c)
		bad := inCycles(slices.Collect(maps.Keys(all)))
		want := cycles[dir].arrows
		switch {
		case len(bad) > want:
			for _, a := range bad {
				t.Logf("%s: %s uses %s of %s", dir, a.from, all[a], a.to)
			}
			t.Errorf("%s: %d arrows from file to file are part of a cycle, %d are allowed", dir, len(bad), want)
		case len(bad) < want:
			t.Errorf("%s: %d arrows from file to file are part of a cycle: lower the list's %d", dir, len(bad), want)
		}
	}
	for dir, c := range cycles {
		if c.arrows == 0 || !slices.Contains(anyOrder, dir) {
			t.Errorf("%s must be removed from the list of cycles", dir)
		}
	}
}

// inCycles returns the arrows that are part of a cycle, in order.
func inCycles(all []arrow) []arrow {
	next := map[string][]string{}
	for _, a := range all {
		next[a.from] = append(next[a.from], a.to)
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
	bad := slices.DeleteFunc(all, func(a arrow) bool { return !reach[a.to][a.from] })
	slices.SortFunc(bad, func(a, b arrow) int { return strings.Compare(a.from+" "+a.to, b.from+" "+b.to) })
	return bad
}

func TestCycleIsFound(t *testing.T) {
	got := inCycles([]arrow{{"a", "b"}, {"b", "c"}, {"c", "b"}, {"c", "d"}, {"e", "a"}})
	if want := []arrow{{"b", "c"}, {"c", "b"}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
