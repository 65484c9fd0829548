package daemon

// The list of GPUs while the daemon runs.

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// listing keeps the list of a driver's GPUs current, and returns how many the host has.
func listing(t *testing.T, driver gpu.Driver) (*devices, func() int) {
	t.Helper()
	d := &devices{driver: driver, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
	d.list(t.Context(), firstWait)
	all, _ := d.listed()
	host := contract.Profile{GPUs: all}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.keepListed(ctx, func(change func(*contract.Profile)) { change(&host) })
	}()
	t.Cleanup(func() { stop(); <-ended })
	return d, func() int { synctest.Wait(); return len(host.GPUs) }
}

func TestGPUsAreListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eight := gputest.Devices(8, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)
		for i := range eight {
			eight[i].Nodes = []gpu.Node{{Major: gputest.Major, Minor: uint32(i)}}
		}
		driver := gputest.New()
		driver.Fail(errors.New("ERROR_LIB_RM_VERSION_MISMATCH"))
		d, count := listing(t, driver)
		if n := count(); n != 0 {
			t.Fatalf("a driver that does not work: got %d GPUs, want 0", n)
		}
		f := gpuFact(Config{}, d)
		if f.State != api.FactFail || !strings.Contains(f.Detail, "ERROR_LIB_RM_VERSION_MISMATCH") || f.Advice == "" {
			t.Errorf("doctor: got %+v, want the error of the driver with advice", f)
		}
		driver.Fail(nil)
		driver.Set(eight...)
		time.Sleep(listEvery)
		if n := count(); n != 8 {
			t.Errorf("after the driver works: got %d GPUs, want 8", n)
		}
		if f := gpuFact(Config{}, d); f.State != api.FactOK {
			t.Errorf("doctor: got %+v, want OK", f)
		}
		if g := d.grant([]string{"GPU-7"}, job.Resources{}); g.Env["VISIBLE_TEST_DEVICES"] != "GPU-7" || !slices.Equal(g.Closed[0].Open, []uint32{7}) {
			t.Errorf("a task with a GPU: got %+v, want GPU-7 alone", g)
		}
		driver.Set(eight[:7]...) // one is lost
		ring(d.relist)           // after a fault
		if n := count(); n != 7 {
			t.Errorf("after one was lost: got %d GPUs, want 7", n)
		}
		driver.Fail(errors.New("a hiccup"))
		time.Sleep(time.Hour)
		if n := count(); n != 7 {
			t.Errorf("a driver that does not answer: got %d GPUs, want 7", n)
		}
		driver.Fail(nil)
		driver.Set(eight...)
		time.Sleep(listEvery)
		if n := count(); n != 8 {
			t.Errorf("after one was found: got %d GPUs, want 8", n)
		}
	})
}

// pausing is a driver that lists nothing until it is told to query again.
type pausing struct {
	*gputest.Driver
	anew int
}

func (p *pausing) List(ctx context.Context) ([]gpu.Device, error) {
	if p.anew == 0 {
		return nil, nil
	}
	return p.Driver.List(ctx)
}

func (p *pausing) Anew(context.Context) error {
	p.anew++
	return nil
}

// A reload lists the GPUs at once, also if the driver pauses.
func TestGPUsAreListedOnAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &pausing{Driver: gputest.New(gputest.Devices(2, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)...)}
		d, count := listing(t, driver)
		time.Sleep(time.Hour)
		if n := count(); n != 0 || driver.anew != 0 {
			t.Fatalf("a driver that pauses: got %d GPUs and %d requests to query again, want 0 and 0", n, driver.anew)
		}
		began := time.Now()
		d.listAgain()
		d.listAgain()
		if n := count(); n != 2 || time.Since(began) != 0 {
			t.Errorf("got %d GPUs after %s, want 2 at once", n, time.Since(began))
		}
		if driver.anew > 2 {
			t.Errorf("got %d requests to query again, want at most 2", driver.anew)
		}
	})
}

// sleeper is a driver whose first list takes a while.
type sleeper struct {
	*gputest.Driver
	wakes time.Time
}

// List waits until the GPUs are awake.
func (s sleeper) List(ctx context.Context) ([]gpu.Device, error) {
	timer := time.NewTimer(time.Until(s.wakes))
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.Driver.List(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestSleepingGPUsDoNotDelayTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := sleeper{gputest.New(gputest.Devices(8, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)...), time.Now().Add(24 * time.Second)}
		began := time.Now()
		_, count := listing(t, driver)
		if took := time.Since(began); took > firstWait {
			t.Errorf("the daemon waited %s, want at most %v", took, firstWait)
		}
		if n := count(); n != 0 {
			t.Fatalf("while they sleep: got %d GPUs, want 0", n)
		}
		time.Sleep(20 * time.Second)
		if n := count(); n != 8 {
			t.Errorf("after they are awake: got %d GPUs, want 8", n)
		}
	})
}
