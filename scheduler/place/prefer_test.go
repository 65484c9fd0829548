package place

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// racks is a table of n hosts with 8 CPUs each, all free but those of busy hosts. Host i is in rack i%10; the first is
// the local one.
func racks(n int, busy func(i int) bool) (*fleet.Table, *Placer) {
	t := fleet.NewTable()
	for i := range n {
		m := contract.Hello{
			Profile: contract.Profile{
				Name: fmt.Sprint("n", i), CPUs: 8, Worker: true, Drivers: []string{contract.DriverExec},
				Labels: map[string]string{"rack": fmt.Sprint("r", i%10), "host": fmt.Sprint("h", i)},
			},
			Free: contract.Free{CPUs: 8},
		}
		if busy(i) {
			m.Free.CPUs = 0
		}
		t.Hello(t.Add(job.Peer(fmt.Sprint("p-n", i)), i == 0), m, now)
	}
	t.Count(now)
	return &t, New(&t, nil)
}

// prefersTask asks for 4 CPUs, and has preferences.
func prefersTask(t *fleet.Table, prefer string, avoid ...Avoidance) *Task {
	need := job.Resources{CPUs: 4}
	clauses, err := fleet.ClausesOf(job.Spec{Resources: need})
	if err != nil {
		panic(err)
	}
	prefers, err := job.ParsePrefer(prefer)
	if err != nil {
		panic(err)
	}
	s := &fleet.Shape{User: "amy", Need: need, Foot: fleet.FootprintOf(need), Pool: t.JoinPool(prefer, clauses, prefers...)}
	return &Task{Request: fleet.Request{Shape: s, Rank: fleet.Rank{Job: "j"}}, Policy: policy.Simple{}, Avoid: avoid}
}

// The policy gets only the hosts that meet the preferences best, however rare they are among those with capacity.
func TestPolicyGetsOnlyThePreferredHosts(t *testing.T) {
	for _, c := range []struct {
		prefer string
		avoid  []Avoidance
		busy   func(i int) bool
		want   string // the hosts that the policy gets: the first three in order, and how many
		why    string
	}{
		{"host=h777", nil, nil, "n777 (1)", "prefers host=h777; the last"},
		{"host=h777|host=h3", nil, nil, "n3 n777 (2)", "prefers host=h777|host=h3; the last"},
		{"host=h777", nil, func(i int) bool { return i == 777 }, "n0 n500 n501 (64)", "the last"},
		{"host=h777:2,host=h3:3", nil, nil, "n3 (1)", "prefers host=h3; the last"},
		{"rack=r3,host=h3", nil, nil, "n3 (1)", "prefers rack=r3, host=h3; the last"},
		{"rack=r3,host=h3", nil, func(i int) bool { return i == 3 }, "n503 n513 n523 (64)", "prefers rack=r3; the last"},
		{"rack=r3", []Avoidance{hard("n503", 9), avoid("n513", 9)}, nil, "n523 n533 n543 (63)", "prefers rack=r3; the last"},
		{"host=h7", []Avoidance{avoid("n7", 9)}, nil, "n0 n500 n501 (64)", "the last"}, // the host where it failed comes last
		{"rack=none", nil, nil, "n0 n500 n501 (64)", "the last"},
		{"rack", nil, nil, "n0 n500 n501 (64)", "prefers rack; the last"},
	} {
		if c.busy == nil {
			c.busy = func(int) bool { return false }
		}
		s := &seen{}
		table, p := racks(1000, c.busy)
		task := prefersTask(table, c.prefer, c.avoid...)
		task.Policy = s
		d := p.Decide(task, 500, now)
		first := slices.Clone(s.names[:min(3, len(s.names))])
		if c.prefer == "host=h777|host=h3" {
			slices.Sort(first)
		}
		if got := fmt.Sprintf("%s (%d)", strings.Join(first, " "), len(s.names)); got != c.want || d.Verdict != Fits || d.Why != c.why {
			t.Errorf("prefer %s: the policy sees %s, want %s; %s, want %s", c.prefer, got, c.want, d.Why, c.why)
		}
	}
}

// A preference changes nothing if no host has capacity: the task queues as it would without.
func TestPreferenceNeverWaits(t *testing.T) {
	table, p := racks(3, func(int) bool { return true })
	if got, plain := text(p.Decide(prefersTask(table, "rack=r2"), 0, now)), text(p.Decide(prefersTask(table, ""), 0, now)); got != plain {
		t.Errorf("with the preference %s, want %s as without", got, plain)
	}
	table, p = racks(3, func(i int) bool { return i == 2 })
	if got := text(p.Decide(prefersTask(table, "rack=r2"), 0, now)); !strings.HasPrefix(got, "fits n0") {
		t.Errorf(`%s, want prefix "fits n0"`, got)
	}
}

// BenchmarkPrefer places a task with preferences: 64 hosts with capacity, and 10,000 of which few are preferred.
func BenchmarkPrefer(b *testing.B) {
	for _, c := range []struct {
		hosts  int
		prefer string
	}{{64, ""}, {64, "rack=r3"}, {64, "rack=r3:2,rack=r4|rack=r5,!rack=r6"}, {10_000, ""}, {10_000, "rack=r3"}, {10_000, "host=h777,rack=r4:3"}} {
		b.Run(fmt.Sprintf("%d hosts %q", c.hosts, c.prefer), func(b *testing.B) {
			table, p := racks(c.hosts, func(i int) bool { return i == 777 })
			task := prefersTask(table, c.prefer)
			for b.Loop() {
				p.Decide(task, 17, now)
			}
		})
	}
}
