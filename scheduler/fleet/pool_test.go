package fleet

import (
	"testing"

	"github.com/musterhq/muster/job"
)

// Requests share their hosts only if no clause tells them apart, however their
// parts run together.
func TestPoolKeysDiffer(t *testing.T) {
	specs := []job.Spec{
		{},
		{Image: "busybox"},
		{Constraint: "x|y"},
		{Constraint: "x", NodeList: []string{"y"}},
		{Constraint: "x", Exclude: []string{"y"}},
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
			t.Errorf("%+v and %+v share one key", s, other)
		}
		seen[key] = s
	}
}
