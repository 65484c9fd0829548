package place

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// host is a host of a test: 8 CPUs, of which some are free, and GPUs.
type host struct {
	name     string
	free     int
	gpus     int // all of them free
	queued   int // queued claims
	local    bool
	draining bool
}

// aFleet is a table of these hosts, and a Placer for it.
func aFleet(hosts ...host) (*fleet.Table, *Placer) {
	t := fleet.NewTable()
	for _, x := range hosts {
		m := contract.Hello{
			Profile: contract.Profile{Name: x.name, CPUs: 8, Worker: true, Drivers: []string{contract.DriverExec}},
			Free:    contract.Free{CPUs: x.free},
		}
		for i := range x.gpus {
			d := gpu.Device{UUID: fmt.Sprint(x.name, i), Class: "h100-80gb", Memory: 80e9}
			m.Profile.GPUs = append(m.Profile.GPUs, d)
			m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
		}
		h := t.Add(job.Peer("p-"+x.name), x.local)
		t.Hello(h, m, now)
		for i := range x.queued {
			c := &fleet.Claim{ID: uint64(i), Rank: fleet.Rank{Priority: 5, Task: i}, Need: job.Resources{CPUs: 8}, State: fleet.Queued}
			h.Claim(c)
		}
		if x.draining {
			h.Availability(contract.Availability{Draining: true, Free: m.Free})
		}
	}
	t.Count(now)
	return &t, New(&t, nil)
}

// aTask asks for so many CPUs and GPUs, ranks behind all queued claims, and has the policy "simple".
func aTask(t *fleet.Table, cpus, gpus int, avoid ...Avoidance) *Task {
	need := job.Resources{CPUs: cpus, GPUs: gpus}
	clauses, err := fleet.ClausesOf(job.Spec{Resources: need})
	if err != nil {
		panic(err)
	}
	s := &fleet.Shape{User: "amy", Need: need, Foot: fleet.FootprintOf(need), Pool: t.JoinPool(fmt.Sprint(need), clauses)}
	return &Task{Request: fleet.Request{Shape: s, Rank: fleet.Rank{Job: "j"}}, Policy: policy.Simple{}, Avoid: avoid}
}

// avoid is an avoidance of the host for so many seconds.
func avoid(name string, seconds int) Avoidance {
	return Avoidance{Peer: job.Peer("p-" + name), Until: now.Add(time.Duration(seconds) * time.Second)}
}

func hard(name string, seconds int) Avoidance {
	a := avoid(name, seconds)
	a.Hard = true
	return a
}

func kept(name string, seconds int) Avoidance {
	a := avoid(name, seconds)
	a.Kept = true
	return a
}

// text shows a decision in a line.
func text(d Decision) string {
	out := d.Verdict.String()
	switch d.Verdict {
	case Fits:
		out += fmt.Sprintf(" %s %v: %s", d.Host.Name(), d.Devices, d.Why)
	case Queues:
		out += " " + names(d.Queue)
	case Pauses:
		out += " " + d.Until.Sub(now).String()
	case Blocked:
	}
	for _, a := range d.Again {
		out += fmt.Sprintf("; again %s %s", a.Host.Name(), a.At.Sub(now))
	}
	return out
}

func names(hosts []*fleet.Host) string {
	var out []string
	for _, h := range hosts {
		out = append(out, h.Name())
	}
	return strings.Join(out, " ")
}

func TestEachDecision(t *testing.T) {
	full := func(name string) host { return host{name: name} }
	shut := func(name string) host { return host{name: name, queued: fleet.MaxQueuedAll} } // its queue has no place
	many := make([]Avoidance, maxAvoid)
	for i := range many {
		many[i] = avoid(fmt.Sprint(i), 60-i%7)
	}
	for _, c := range []struct {
		name       string
		hosts      []host
		cpus, gpus int
		avoid      []Avoidance
		want       string
	}{
		{"no host", nil, 1, 0, nil, "blocked"},
		{"the policy's host", []host{{name: "a", free: 8}, {name: "b", free: 3}}, 2, 0, nil, "fits b []: least waste: leaves 1 of 8 CPUs"},
		{"the local host", []host{{name: "a", free: 8}, {name: "b", free: 3}, {name: "c", free: 8, local: true}}, 2, 0, nil, "fits c []: this host"},
		{"devices", []host{{name: "a", free: 8, gpus: 4}, {name: "b", free: 8, gpus: 3}}, 1, 2, nil, "fits b [b0 b1]: least waste: leaves 1 of 3 GPUs"},
		{"less what queues before it", []host{{name: "a", free: 8, queued: 1}, {name: "b", free: 2}}, 2, 0, nil, "fits b []: least waste: leaves 0 of 8 CPUs"},
		{"none could ever", []host{{name: "a", free: 8}}, 9, 0, nil, "blocked"},
		{"a draining host", []host{{name: "a", free: 8, draining: true}}, 1, 0, nil, "blocked"},

		{"a full host", []host{full("a")}, 1, 0, nil, "queues a"},
		{"the shortest queues", []host{{name: "a", queued: 3}, {name: "b", queued: 1}, {name: "c", queued: 2}, full("d")}, 1, 0, nil, "queues d b c"},
		{"a full queue", []host{shut("a"), full("b")}, 1, 0, nil, "queues b"},
		{"full queues alone", []host{shut("a"), shut("b")}, 1, 0, nil, "blocked"},

		{"where it failed", []host{{name: "a", free: 2}, {name: "b", free: 8}}, 2, 0, []Avoidance{avoid("a", 9)}, "fits b []: least waste: leaves 6 of 8 CPUs"},
		{"where it failed, and no other", []host{{name: "a", free: 2}, full("b")}, 2, 0, []Avoidance{avoid("a", 9)}, "fits a []: least waste: leaves 0 of 8 CPUs"},
		{"where it failed, and where it failed before", []host{{name: "a", free: 2}, {name: "b", free: 8}}, 2, 0, []Avoidance{avoid("b", 5), avoid("a", 9)}, "fits b []: least waste: leaves 6 of 8 CPUs"},
		{"where it failed before, and where it failed", []host{{name: "a", free: 2}, {name: "b", free: 8}}, 2, 0, []Avoidance{avoid("b", 9), avoid("a", 5)}, "fits a []: least waste: leaves 0 of 8 CPUs"},
		{"it failed there long ago", []host{{name: "a", free: 2}, {name: "b", free: 8}}, 2, 0, []Avoidance{avoid("a", 0)}, "fits a []: least waste: leaves 0 of 8 CPUs"},
		{"full, where it failed last", []host{full("a"), {name: "b", queued: 1}}, 1, 0, []Avoidance{avoid("a", 9)}, "queues b a"},
		{"a host that declined", []host{{name: "a", free: 2}, {name: "b", free: 8}}, 2, 0, []Avoidance{hard("a", 9)}, "fits b []: least waste: leaves 6 of 8 CPUs; again a 9s"},
		{"a host that declined, and a full one", []host{{name: "a", free: 2}, full("b")}, 2, 0, []Avoidance{hard("a", 9)}, "queues b; again a 9s"},
		{"hosts that declined", []host{{name: "a", free: 2}, {name: "b", free: 2}}, 2, 0, []Avoidance{hard("a", 9), hard("b", 5)}, "pauses 5s; again a 9s; again b 5s"},
		{"a full host that declined", []host{full("a")}, 2, 0, []Avoidance{hard("a", 9)}, "pauses 9s"},
		{"one declined, others have no place", []host{{name: "a", free: 2}, shut("b")}, 2, 0, []Avoidance{hard("a", 9)}, "pauses 1s; again a 9s"},
		{"one declined that could never", []host{{name: "a", free: 8}, shut("b")}, 9, 0, []Avoidance{hard("a", 9)}, "blocked"},
		{"a host that keeps its room", []host{{name: "a", free: 2}}, 2, 0, []Avoidance{kept("a", 9)}, "queues a"},
		{"a host that keeps its room, and another", []host{{name: "a", free: 2}, {name: "b", free: 8}}, 2, 0, []Avoidance{kept("a", 9)}, "fits b []: least waste: leaves 6 of 8 CPUs"},
		{"too many avoided", []host{{name: "a", free: 8}}, 1, 0, many, "pauses 54s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, p := aFleet(c.hosts...)
			task := aTask(table, c.cpus, c.gpus, c.avoid...)
			for range 2 { // the first has no effect
				for from := range max(1, len(c.hosts)) {
					got := p.Decide(task, from, now)
					slices.SortFunc(got.Again, func(a, b Again) int { return strings.Compare(a.Host.Name(), b.Host.Name()) })
					if text(got) != c.want {
						t.Errorf("from slot %d: %s, want %s", from, text(got), c.want)
					}
				}
			}
		})
	}
}

// seen is a policy that prefers the last candidate, and records the candidates.
type seen struct{ names []string }

func (s *seen) Choose(chosen []policy.Choice, _ policy.Ask, feasible []policy.Candidate, _ int) []policy.Choice {
	s.names = nil
	for _, c := range feasible {
		s.names = append(s.names, c.Host.Name())
	}
	if len(feasible) == 0 {
		return chosen
	}
	return append(chosen, policy.Choice{Index: len(feasible) - 1, Devices: []string{"device"}, Why: "the last"})
}

// The policy gets the hosts where the task fits, and its choice is the decision. It gets hosts that the task avoids
// only if there is no other, and at most a sample of the hosts.
func TestChoiceOfThePolicyIsTheDecision(t *testing.T) {
	s := &seen{}
	table, p := aFleet(host{name: "a", free: 8}, host{name: "b", free: 1}, host{name: "c", free: 2}, host{name: "d", free: 8})
	for _, c := range []struct {
		avoid []Avoidance
		seen  string
	}{
		{nil, "[a c d]"},
		{[]Avoidance{avoid("d", 1)}, "[a c]"},
		{[]Avoidance{avoid("d", 1), hard("a", 1), kept("c", 1)}, "[d]"},
	} {
		task := aTask(table, 2, 0, c.avoid...)
		task.Policy = s
		d := p.Decide(task, 0, now)
		last := s.names[len(s.names)-1]
		if fmt.Sprint(s.names) != c.seen || d.Verdict != Fits || d.Host.Name() != last || d.Why != "the last" || d.Devices[0] != "device" {
			t.Errorf("avoiding %v the policy sees %v, want %s; decided: %s", c.avoid, s.names, c.seen, text(d))
		}
	}
	var hosts []host
	for i := range 3 * SampleSize {
		hosts = append(hosts, host{name: fmt.Sprint(i), free: 8, local: i == 100})
	}
	table, p = aFleet(hosts...)
	task := aTask(table, 1, 0)
	task.Policy = s
	for _, sample := range []int{SampleSize, 100} {
		p.Sample = sample
		p.Decide(task, 150, now)
		if len(s.names) != sample || s.names[0] != "100" || s.names[1] != "150" || slices.Contains(s.names[1:], "100") {
			t.Errorf("of %d hosts the policy sees %d: %v, want a sample of those that the task does not avoid", len(hosts), len(s.names), s.names)
		}
	}
}

// A queued task may queue at further hosts, but at none twice.
func TestTaskQueuesAtFurtherHosts(t *testing.T) {
	table, p := aFleet(host{name: "a"}, host{name: "b"})
	task := aTask(table, 1, 0)
	for _, want := range []string{"a b", "b", ""} {
		got := p.Queue(task, 0, now)
		if names(got) != want {
			t.Errorf("while it queues at %q: %q, want %q", names(task.At), names(got), want)
		}
		if len(got) > 0 {
			task.At = append(task.At, got[0])
		}
	}
}

// A task with more than the usual priority queues at many hosts, except for those that it avoids. Any other task does
// so where tasks with a lower priority queue, as these do not go first.
func TestTaskQueuesWhereLowerPrioritiesQueue(t *testing.T) {
	var hosts []host
	for i := range 20 {
		hosts = append(hosts, host{name: string(rune('a' + i)), queued: map[int]int{16: 3, 18: 1}[i]})
	}
	table, p := aFleet(hosts...)
	for _, c := range []struct {
		priority      int
		avoid         []Avoidance
		queue, passed string
	}{
		{5, nil, "a b c", ""},
		{6, nil, "q s a", ""},
		{51, nil, "q s a", "b c d e f g h i j"},
		{51, []Avoidance{avoid("a", 9), avoid("c", 9)}, "q s b", "d e f g h i j k l"},
	} {
		task := aTask(table, 1, 0, c.avoid...)
		task.Rank.Priority = c.priority
		if d := p.Decide(task, 0, now); names(d.Queue) != c.queue || names(d.Passed) != c.passed {
			t.Errorf("priority %d, avoiding %v: at %q, %q; want %q, %q", c.priority, c.avoid, names(d.Queue), names(d.Passed), c.queue, c.passed)
		}
	}
	for i := range 5 {
		table.Host(job.Peer("p-" + string(rune('k'+i)))).Claim(&fleet.Claim{ID: 1, Rank: fleet.Rank{Priority: 1}, Need: job.Resources{CPUs: 8}, State: fleet.Queued})
	}
	table.Count(now)
	task := aTask(table, 1, 0)
	task.Rank.Priority = 6
	if d := p.Decide(task, 0, now); names(d.Queue) != "k l m" || names(d.Passed) != "n o q s" {
		t.Errorf(`where seven hosts have tasks of a lower priority it queues at %q, %q, want "k l m" and "n o q s"`, names(d.Queue), names(d.Passed))
	}
}

// Which tasks a host with new capacity may get: tasks that fitted nowhere, and tasks that queue at other hosts.
func TestTasksForAHostWithNewCapacity(t *testing.T) {
	for _, c := range []struct {
		name           string
		host           host
		cpus           int
		avoid          []Avoidance
		parked, queued string
	}{
		{"room", host{free: 8}, 2, nil, "yes", "yes"},
		{"room for less", host{free: 1}, 2, nil, "yes", "no"}, // it may queue
		{"room for less, and no place in the queue", host{free: 1, queued: fleet.MaxQueuedAll}, 2, nil, "no", "no"},
		{"could never", host{free: 8}, 9, nil, "no", "no"},
		{"where it failed", host{free: 8}, 2, []Avoidance{avoid("h", 9)}, "yes", "no, again 9s"},
		{"declined", host{free: 8}, 2, []Avoidance{hard("h", 9)}, "no, again 9s", "no, again 9s"},
		{"declined, and is full now", host{free: 1}, 2, []Avoidance{hard("h", 9)}, "no, again 9s", "no"},
		{"keeps its room", host{free: 8}, 2, []Avoidance{kept("h", 9)}, "yes", "yes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.host.name = "h"
			table, p := aFleet(c.host)
			task, h := aTask(table, c.cpus, 0, c.avoid...), table.Host("p-h")
			for range 2 {
				if got := answer(p.MayTake(task, h, now)); got != c.parked {
					t.Errorf("parked: %s, want %s", got, c.parked)
				}
				if got := answer(p.MayTakeQueued(task, h, now)); got != c.queued {
					t.Errorf("queued elsewhere: %s, want %s", got, c.queued)
				}
			}
		})
	}
}

func answer(may bool, again time.Time) string {
	switch {
	case may:
		return "yes"
	case again.IsZero():
		return "no"
	}
	return "no, again " + again.Sub(now).String()
}

func TestChosenDevicesAreThoseOfTheHost(t *testing.T) {
	table, p := aFleet(host{name: "a", free: 8, gpus: 2}, host{name: "b", free: 8, gpus: 4})
	for gpus, want := range []string{"[]", "[a0]", "[a0 a1]", "[]"} {
		if got := fmt.Sprint(p.DevicesAt(aTask(table, 1, gpus), table.Host("p-a"))); got != want {
			t.Errorf("%d GPUs: %s, want %s", gpus, got, want)
		}
	}
}

// A decision allocates memory only for its reason, and for its devices if it has any.
func TestDecisionAllocatesOnlyItsReason(t *testing.T) {
	var hosts []host
	for i := range 2 * SampleSize {
		hosts = append(hosts, host{name: fmt.Sprint("n", i), free: i % 4})
	}
	table, p := aFleet(hosts...)
	for cpus, want := range map[int]float64{2: 1, 4: 0, 9: 0} { // fits, queues, is blocked
		task := aTask(table, cpus, 0)
		if n := testing.AllocsPerRun(100, func() { p.Decide(task, 5, now) }); n > want {
			t.Errorf("%s with %v allocations, want %v", p.Decide(task, 5, now).Verdict, n, want)
		}
	}
}
