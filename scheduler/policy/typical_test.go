package policy

import (
	"testing"

	"github.com/musterhq/muster/job"
)

// The counts are bounded, however many kinds of requests there are. Frequent ones stay.
func TestUsualRequestsAreBounded(t *testing.T) {
	often, seldom := job.Resources{CPUs: 4, GPUs: 1}, job.Resources{CPUs: 2, GPUs: 2}
	typical := &Typical{}
	for i := range 100_000 {
		typical.Asked(often, 1)
		if i%10 == 0 {
			typical.Asked(seldom, 1)
		}
		typical.Asked(job.Resources{CPUs: i, GPUShare: 0.5}, 1)
		if len(typical.kinds) > maxKinds || len(typical.index) != len(typical.kinds) || typical.total > maxAsked {
			t.Fatalf("after %d: %d kinds, %d indexed, %d requests, want at most %v, %v and at most %v", i, len(typical.kinds), len(typical.index), typical.total, maxKinds, len(typical.kinds), maxAsked)
		}
	}
	typical.Asked(job.Resources{CPUs: 1}, 1<<60)
	if n := typical.kinds[typical.index[kind{cpus: 1}]].count; n != maxAtOnce {
		t.Errorf("one job counts %d times, want %v", n, maxAtOnce)
	}
	a := typical.kinds[typical.index[kind{cpus: 4, gpus: 1, milli: 1000}]]
	b := typical.kinds[typical.index[kind{cpus: 2, gpus: 2, milli: 1000}]]
	if a.cpus != 4 || b.cpus != 2 || a.count < 9*b.count || a.count > 11*b.count {
		t.Errorf("the counts are %+v and %+v, want ten to one", a, b)
	}
}

// Old requests count less and less.
func TestOldRequestsCountLess(t *testing.T) {
	old, recent := job.Resources{CPUs: 4, GPUs: 1}, job.Resources{CPUs: 2, GPUs: 2}
	typical := &Typical{}
	for range 100 {
		typical.Asked(old, maxAtOnce)
	}
	for range 100 {
		typical.Asked(recent, maxAtOnce)
		if typical.total > maxAsked {
			t.Fatalf("%d requests are counted, want at most %v", typical.total, maxAsked)
		}
	}
	if share := float64(typical.kinds[0].count) / float64(typical.total); typical.kinds[0].cpus != 4 || share > 0.01 {
		t.Errorf("of %d requests %d are old ones, want at most 1 %%", typical.total, typical.kinds[0].count)
	}
}

// The workload follows the requests: it is computed again when they have grown by an eighth, and not before.
func TestWorkloadIsComputedAgainAfterAnEighthMore(t *testing.T) {
	typical := &Typical{}
	if typical.workload() != nil {
		t.Error("there is a workload without requests")
	}
	typical.Asked(job.Resources{CPUs: 1}, 100)
	if typical.workload() != nil {
		t.Error("there is a workload without requests for GPUs")
	}
	typical.Asked(job.Resources{CPUs: 1, GPUs: 1, Memory: 2 << 30}, 60)
	first := typical.workload()
	if first == nil || len(first.classes) != 2 || first.classes[0].rate != 1 || first.classes[1].rate != cpuOnlyMost {
		t.Fatalf("the workload is %+v, want 2 classes, the first with rate 1", first)
	}
	typical.Asked(job.Resources{CPUs: 1, GPUs: 1}, 1)
	if typical.workload() != first {
		t.Error("computed again after one request of 161")
	}
	typical.Asked(job.Resources{CPUs: 1, GPUs: 1}, 19)
	if typical.workload() == first {
		t.Error("not computed again after 20 requests of 180")
	}
}
