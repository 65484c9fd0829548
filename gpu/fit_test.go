package gpu

import (
	"testing"

	"github.com/musterhq/muster/job"
)

func TestMilliAndMemoryOfANeed(t *testing.T) {
	for _, c := range []struct {
		need   job.Resources
		milli  int
		count  int
		memory job.Size // of a device of 16000 bytes
	}{
		{job.Resources{}, 0, 0, 0},
		{job.Resources{GPUs: 3}, Whole, 3, 16000},
		{job.Resources{GPUs: 1, GPUMemory: 5}, Whole, 1, 16000},
		{job.Resources{GPUShare: 0.5}, 500, 1, 8000},
		{job.Resources{GPUShare: 0.5, GPUMemory: 12000}, 500, 1, 12000},
		{job.Resources{GPUShare: 1.0 / 3}, 333, 1, 5328},
		{job.Resources{GPUShare: 0.9999}, 999, 1, 15984},
		{job.Resources{GPUShare: 0.00001}, 1, 1, 16},
	} {
		if m, n, b := Milli(c.need), Count(c.need), Memory(c.need, 16000); m != c.milli || n != c.count || b != c.memory {
			t.Errorf("%+v: %d thousandths, %d devices, %d bytes; want %d, %d, %d", c.need, m, n, b, c.milli, c.count, c.memory)
		}
	}
}
