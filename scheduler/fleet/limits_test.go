package fleet

import (
	"maps"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// A host is not a candidate for a task that its limits never allow, in any search. A newer report of limits counts from
// then on. Hosts with equal limits share them.
func TestHostIsNoCandidateBeyondItsLimits(t *testing.T) {
	table := NewTable()
	limits := &contract.UserLimits{PerUser: contract.Limit{contract.LimitCPUs: 2, contract.LimitPriority: 50}, Users: map[string]contract.Limit{"ada": {contract.LimitCPUs: 3}}}
	hosts := []*Host{table.Add("n1", false), table.Add("n2", false), table.Add("here", true)}
	hello := func(l *contract.UserLimits) {
		for _, h := range hosts {
			copied := &contract.UserLimits{PerUser: maps.Clone(l.PerUser), Users: l.Users}
			p := contract.Profile{Name: string(h.Peer), CPUs: 4, Worker: true, Drivers: []string{contract.DriverExec}, Limits: copied}
			table.Hello(h, contract.Hello{Profile: p, Free: contract.Free{CPUs: 4}}, start)
		}
		table.Count(start)
	}
	hello(limits)
	if hosts[0].Profile.Limits != hosts[1].Profile.Limits {
		t.Error("equal limits are stored twice")
	}
	clauses, err := ClausesOf(job.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	pool, least := table.JoinPool(PoolKey(job.Spec{}), clauses), 0
	shapes := map[string]*Shape{}
	for name, s := range map[string]*Shape{
		"two":           {User: "eve", Need: job.Resources{CPUs: 2}, Priority: 50},
		"three":         {User: "eve", Need: job.Resources{CPUs: 3}, Priority: 50},
		"three of ada":  {User: "ada", Need: job.Resources{CPUs: 3}, Priority: 50},
		"four of ada":   {User: "ada", Need: job.Resources{CPUs: 4}, Priority: 50},
		"all":           {User: "eve", Need: job.Resources{CPUs: 1, Exclusive: true}, Priority: 50},
		"high priority": {User: "eve", Need: job.Resources{CPUs: 1}, Priority: 51},
	} {
		s.Pool, s.Foot = pool, FootprintOf(s.Need)
		shapes[name] = s
	}
	check := func(when string, want map[string]int) {
		t.Helper()
		for name, s := range shapes {
			for range 2 { // the second time from the results of the first
				found := [3]int{}
				for range table.WithRoom(s, 0, &least) {
					found[0]++
				}
				for range NearestWithRoom(&table, s, 0, &least) {
					found[1]++
				}
				for range table.Candidates(s) {
					found[2]++
				}
				if n := want[name]; found != [3]int{n, n, n} {
					t.Errorf("%s: %s: found %v, want %d", when, name, found, n)
				}
			}
			x := job.Spec{Resources: s.Need, Exclusive: s.Need.Exclusive, Priority: s.Priority}
			all, err := ClausesOfUser(s.User, x)
			if err != nil {
				t.Fatal(err)
			}
			meet := 0
			for _, h := range hosts {
				if Meets(all, h) {
					meet++
				}
			}
			if meet != want[name] {
				t.Errorf("%s: %s: %d meet the clauses, want %d", when, name, meet, want[name])
			}
		}
	}
	check("at first", map[string]int{"two": 3, "three": 0, "three of ada": 3, "four of ada": 0, "all": 0, "high priority": 1})
	limits.PerUser[contract.LimitCPUs] = 4
	hello(limits)
	check("after a change", map[string]int{"two": 3, "three": 3, "three of ada": 3, "four of ada": 0, "all": 3, "high priority": 1})
	hello(&contract.UserLimits{})
	check("without limits", map[string]int{"two": 3, "three": 3, "three of ada": 3, "four of ada": 3, "all": 3, "high priority": 3})
}
