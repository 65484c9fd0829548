package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func TestClassesThatAreSearchedForARequest(t *testing.T) {
	long := strings.Repeat("x", job.MaxName)
	for _, c := range []struct {
		nodes      string
		constraint string
		need       job.Resources
		want       string
	}{
		{"", "", job.Resources{CPUs: 1}, "worker"},
		{"", "", job.Resources{GPUs: 2, GPUModel: "h100"}, "gpu/model/h100/x2"},
		{"n7", "", job.Resources{}, "label/name=n7"},
		{"n7", "rack=r1", job.Resources{GPUs: 1, GPUModel: "h100"}, "label/name=n7"},
		{"n*", "", job.Resources{}, "worker"},
		{"n[1-3]", "", job.Resources{}, "worker"},
		{"n7 n8", "", job.Resources{}, "worker"},
		{"n7 n8", "", job.Resources{GPUs: 1, GPUModel: "h100"}, "gpu/model/h100"},

		{"", "rack=r1", job.Resources{CPUs: 64}, "label/rack=r1"},
		{"", "rack=r1&!old&zone==z", job.Resources{}, "label/rack=r1 label/zone=z"},
		{"", "rack=r1", job.Resources{GPUs: 1, GPUModel: "h100"}, "label/rack=r1 gpu/model/h100"},
		{"", "rack=r1|rack=r2", job.Resources{}, "label/rack=r1 label/rack=r2"},
		{"", "(rack=r1|rack=r2)&zone=z", job.Resources{}, "label/zone=z"},
		{"", "a=1&b=2&c=3&d=4&e=5", job.Resources{GPUs: 1}, "label/a=1 label/b=2 label/c=3 gpu"},
		{"", "rack=r1|old", job.Resources{}, "worker"},
		{"", "!rack=r1&rack!=r2&old", job.Resources{}, "worker"},
		{"", "name=n7&rack=r1", job.Resources{}, "label/name=n7"},
		{"", "arch=aarch64", job.Resources{}, "arch/arm64"},
		{"", "arch=amd64", job.Resources{}, "worker"},
		{"", "arch=arm64|arch=amd64", job.Resources{}, "worker"}, // a class of one architecture does not find hosts of the other

		{"", "gpu.memory>=40GB", job.Resources{GPUs: 2}, "gpu/mem/40/x2"},
		{"", "gpu.memory<40GB", job.Resources{GPUs: 2}, "gpu/x2"},
		{"", "gpu.count>=4", job.Resources{}, "gpu/x4"},
		{"", "memory>=1TB", job.Resources{}, "mem/256"},
		{"", "cpus>=64", job.Resources{}, "cpu/32"},

		{"", long + "=" + long, job.Resources{}, "worker"}, // no host advertises such a class
		{"", "a&", job.Resources{}, "worker"},
		{"", "", job.Resources{GPUs: 1, GPUModel: "h\u00e9 100"}, "worker"},
	} {
		s := job.Spec{Constraint: c.constraint, Resources: c.need, NodeList: strings.Fields(c.nodes)}
		if got := strings.Join(ClassesFor(s), " "); got != c.want {
			t.Errorf("nodes %q, constraint %q, need %+v: %s, want %s", c.nodes, c.constraint, c.need, got, c.want)
		}
	}
}

// A host that meets a constraint has each class that is searched for it, if the constraint leaves no choice.
func TestHostThatMeetsAConstraintIsInItsClasses(t *testing.T) {
	p := contract.Profile{
		Worker: true, Name: "n7", Arch: "arm64", CPUs: 128, Memory: 2e12, Labels: map[string]string{"rack": "r1", "zone": "z"},
		GPUs: sameDevices(8, "h100-80gb", 80e9),
	}
	f := contract.FactsOf(&p)
	all := contract.AllClasses(p)
	for _, text := range []string{
		"rack=r1", "rack=r1&zone=z", "arch=arm64", "name=n7", "gpu.memory>=40GB", "gpu.memory>79GB&gpu.count>4", "cpus>=100", "memory>1TB&!old",
	} {
		c, err := job.ParseConstraint(text)
		if err != nil || !c.Met(&f) {
			t.Fatalf("the host does not meet %s: %v", text, err)
		}
		for _, class := range ClassesFor(job.Spec{Constraint: text}) {
			if !slices.Contains(all, class) {
				t.Errorf("%s is searched as %s, which is not among %v", text, class, all)
			}
		}
	}
}

// Whatever a job requests, few classes are searched, and each is one that may be announced.
func FuzzClassesOfARequestAreFewAndValid(f *testing.F) {
	f.Add("rack=r1&(a=b|c=d)&gpu.memory>=40GB", "n1", "h100", 2)
	f.Fuzz(func(t *testing.T, constraint, node, model string, gpus int) {
		s := job.DefaultSpec()
		s.Command, s.Constraint = []string{"true"}, constraint
		s.Resources.GPUs, s.Resources.GPUModel = gpus, model
		if node != "" {
			s.NodeList = []string{node}
		}
		if s.Validate() != nil {
			return
		}
		classes := ClassesFor(s)
		if len(classes) == 0 || len(classes) > maxSearched || slices.ContainsFunc(classes, func(c string) bool { return !contract.IsClass(c) }) {
			t.Errorf("%q, want a few valid classes", fmt.Sprint(classes))
		}
	})
}
