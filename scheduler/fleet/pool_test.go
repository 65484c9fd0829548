package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Requests share their hosts only if no clause distinguishes them, in whatever way their parts are joined in the key.
func TestDifferentRequestsHaveDifferentPoolKeys(t *testing.T) {
	specs := []job.Spec{
		{},
		{Image: "busybox"},
		{Constraint: "x|y"},
		{Constraint: "x", NodeList: []string{"y"}},
		{Constraint: "x", Exclude: []string{"y"}},
		{Prefer: "x"},
		{Constraint: "x", Prefer: "y"},
		{NodeList: []string{"x", "y"}},
		{NodeList: []string{"x,y"}},
		{NodeList: []string{"x y"}},
		{NodeList: []string{`x" "y`}},
		{NodeList: []string{"x"}, Exclude: []string{"y"}},
		{Image: "busybox", Mounts: []string{"/a:/b"}},
		{Resources: job.Resources{GPUs: 1}},
		{Resources: job.Resources{GPUShare: 0.5}},
		{Resources: job.Resources{GPUs: 1, GPUModel: "a100"}},
		{Resources: job.Resources{GPUs: 1, GPUMemory: 1e9}},
	}
	seen := map[string]job.Spec{}
	for _, s := range specs {
		key := PoolKey(s)
		if other, twice := seen[key]; twice {
			t.Errorf("%+v and %+v share a key", s, other)
		}
		seen[key] = s
	}
}

// BenchmarkJoinPool compares a new request with 10,000 hosts of 8 GPUs.
func BenchmarkJoinPool(b *testing.B) {
	t := NewTable()
	devices := sameDevices(8, "h100-80gb", 80e9)
	for i := range 10_000 {
		p := contract.Profile{
			Name: fmt.Sprint("n", i), CPUs: 64, Worker: true, Drivers: []string{contract.DriverExec}, GPUs: devices,
			Labels: map[string]string{"rack": fmt.Sprint("r", i%100)},
		}
		t.Hello(t.Add(job.Peer(p.Name), false), contract.Hello{Profile: p}, start)
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	for name, s := range map[string]job.Spec{
		"nothing":       {},
		"label":         {Constraint: "rack=r1"},
		"facts":         {Constraint: "rack=r1&!old&gpu.memory>=40GB&driver>=550&arch=arm64|cpus>=128"},
		"prefer":        {Prefer: "rack=r1:3,gpu.cc>=9.0"},
		"nodes":         {NodeList: []string{"n[1-5000]"}, Exclude: []string{"*7"}},
		"1,000 names":   {NodeList: many},
		"slow patterns": {NodeList: slices.Repeat([]string{"*[1-9]*[1-9]*[1-9]*x"}, 32)},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				clauses, err := ClausesOf(s)
				if err != nil {
					b.Fatal(err)
				}
				prefers, _ := job.ParsePrefer(s.Prefer)
				t.LeavePool(t.JoinPool(name, clauses, prefers...))
			}
		})
	}
}
