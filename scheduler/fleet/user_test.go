package fleet

import (
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// A host that runs the tasks of one user only is not a candidate for other users. An explanation names the user only if
// a host does not run the tasks. What a host has reported counts until it says Hello again.
func TestHostOfOneUserIsNoCandidateForOthers(t *testing.T) {
	table := NewTable()
	profile := contract.Profile{Name: "n1", CPUs: 4, Worker: true, Drivers: []string{contract.DriverExec}}
	h := table.Add("n1", false)
	hello := func(only string) {
		p := profile
		p.OnlyUser = only
		table.Hello(h, contract.Hello{Profile: p, Free: contract.Free{CPUs: 4}}, start)
		table.Count(start)
	}
	clauses, err := ClausesOf(job.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	pool := table.JoinPool(PoolKey(job.Spec{}), clauses)
	least := 0
	check := func(what, user string, want bool) {
		t.Helper()
		s := &Shape{User: user, Pool: pool}
		found := 0
		for range table.WithRoom(s, 0, &least) {
			found++
		}
		for range NearestWithRoom(&table, s, 0, &least) {
			found++
		}
		for range table.Candidates(s) {
			found++
		}
		of, err := ClausesOfUser(user, job.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		last := Explain(of, table.Sorted())
		named := last[len(last)-1].Clause == "user: "+user
		if found != map[bool]int{true: 3, false: 0}[want] || named == want || Meets(of, h) != want {
			t.Errorf("%s: found in %d of 3 searches, named: %v, meets: %v, want them to agree", what, found, named, Meets(of, h))
		}
	}
	hello("")
	check("a host of all users", "bob", true)
	hello("ada")
	check("the host's own user", "ada", true)
	check("another user", "bob", false)
	hello("")
	check("a host that runs the tasks of all users again", "bob", true)

	s := &Shape{User: "bob", Pool: pool}
	s.Refuse(h, "bob is an account of the system")
	if said := s.Refusals(table.Sorted()); table.Could(s, h) || len(said) != 1 || said[0].Fails[0].Reason != "bob is an account of the system" {
		t.Errorf("after the host's report: %v, %v, want no candidate and the reason of the host", table.Could(s, h), said)
	}
	hello("")
	if said := s.Refusals(table.Sorted()); !table.Could(s, h) || len(said) != 0 {
		t.Errorf("after its Hello: %v, %v, want a candidate and no reason", table.Could(s, h), said)
	}
}
