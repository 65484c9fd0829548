package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// A user who misspells the name of a node or a label gets the similar names as advice. Requesting less would not help.
func TestMisspelledNamesGetAdvice(t *testing.T) {
	table := NewTable()
	for i, labels := range []map[string]string{{"rack": "r1"}, {"rack": "r2", "zone": "a"}, {}} {
		p := contract.Profile{Name: fmt.Sprint("gpu", i+1), CPUs: 4, Worker: true, Drivers: []string{contract.DriverExec, contract.DriverSigned}, Labels: labels}
		p.GPUs = []gpu.Device{{Class: "h100-80gb"}, {Class: "rtx-6000-ada"}}[i%2 : i%2+1]
		table.Hello(table.Add(job.Peer("p-"+p.Name), false), contract.Hello{Profile: p}, start)
	}
	for _, c := range []struct {
		spec job.Spec
		want string // empty: no advice
	}{
		{job.Spec{NodeList: []string{"gpu11"}}, `no node has the name "gpu11"; give one that is there, such as gpu1`},
		{job.Spec{NodeList: []string{"GPU2"}}, `no node has the name "GPU2"; give one that is there, such as gpu2, gpu1, gpu3`},
		{job.Spec{NodeList: []string{"wholly-other"}}, `no node has the name "wholly-other"; give one that is there, such as gpu1, gpu2, gpu3`},
		{job.Spec{NodeList: []string{"gpx*"}}, `no node has a name such as "gpx*"; give one that is there, such as gpu1`},
		{job.Spec{NodeList: []string{"a", "b"}}, `no node is in the list; give one that is there, such as gpu1`},
		{job.Spec{NodeList: []string{"gpu9=p-gone"}}, `the node "gpu9" is not known, or runs no tasks; give one that is there, such as gpu1`},
		{job.Spec{NodeList: []string{"gpu1"}, Constraint: "rack=r9"}, ""}, // the label exists
		{job.Spec{Constraint: "rak=r1"}, `no node has the label "rak"; give one that is there, such as rack`},
		{job.Spec{Constraint: "rak=r1", TrustedLabels: true}, `no node has the signed label "rak"; there are no signed labels`},
		{job.Spec{Constraint: "H100"}, `no node has the label "H100"; for the model of a GPU write gpu.model=h100`},
		{job.Spec{Constraint: "gpu=h100-80gb"}, `no node has the label "gpu"; for the model of a GPU write gpu.model=h100-80gb`},
		{job.Spec{Constraint: "rack&(ada|a100)"}, `no node has the label "ada"; for the model of a GPU write gpu.model=rtx-6000-ada`},
		{job.Spec{Constraint: "gb"}, `no node has the label "gb"; give one that is there, such as rack, zone`},
		{job.Spec{Resources: job.Resources{CPUs: 9}}, ""},
		{job.Spec{Constraint: "gpu.cc>=9.0"}, ""},
		{job.Spec{NodeList: []string{"gpu1", "gpu11"}}, ""},
	} {
		clauses, err := ClausesOf(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, x := range Explain(clauses, table.Sorted()) {
			got += x.Advice
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%v %s: %q, want %q", c.spec.NodeList, c.spec.Constraint, got, c.want)
		}
	}
}

// The clause of a list of nodes shows their names without the IDs to which they are pinned.
func TestClauseOfPinnedNodesHidesIDs(t *testing.T) {
	clauses, err := ClausesOf(job.Spec{NodeList: []string{"gpu1=12D3KooWone", "gpu[2-3]"}, Exclude: []string{"gpu4=12D3KooWfour"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range clauses {
		got = append(got, c.Text)
	}
	if text := strings.Join(got, "; "); !strings.HasSuffix(text, "nodelist: gpu1,gpu[2-3]; exclude: gpu4") {
		t.Errorf(`clauses %q, want suffix "nodelist: gpu1,gpu[2-3]; exclude: gpu4"`, text)
	}
}

func TestEditDistance(t *testing.T) {
	long := strings.Repeat("a", 65)
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "ab", 1}, {"abc", "xabc", 1}, {"kitten", "sitting", 3}, {"abc", "xyz", 3}, {"abcdef", "uvwxyz", 4}, {"a", "abcdef", 4}, {long, long, 4}} {
		if got := distance(c.a, c.b, 3); got != c.want || distance(c.b, c.a, 3) != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
