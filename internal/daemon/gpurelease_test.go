package daemon

// The GPUs of a host that is drained and put back into service.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
	"github.com/musterhq/muster/internal/contract"
)

// holder is a driver that keeps GPUs open.
type holder struct {
	*gputest.Driver
	mu       sync.Mutex
	released bool  // guarded by mu
	calls    int   // guarded by mu; of List and Status since it was released
	fails    error // guarded by mu; of Release
}

func (h *holder) used() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		h.calls++
		return gpu.ErrReleased
	}
	return nil
}

// List fails while the GPUs are released.
func (h *holder) List(ctx context.Context) ([]gpu.Device, error) {
	if err := h.used(); err != nil {
		return nil, err
	}
	return h.Driver.List(ctx)
}

// Status fails while the GPUs are released.
func (h *holder) Status(ctx context.Context) ([]gpu.Status, error) {
	if err := h.used(); err != nil {
		return nil, err
	}
	return h.Driver.Status(ctx)
}

// Release fails while the test wants it to.
func (h *holder) Release(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = h.fails == nil
	return h.fails
}

// Resume ends a release.
func (h *holder) Resume(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = false
	return nil
}

func (h *holder) open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.released
}

// told is what the worker was told last.
type told struct {
	mu     sync.Mutex
	status []gpu.Status // guarded by mu
	times  int          // guarded by mu
}

// Devices keeps the status.
func (w *told) Devices(s []gpu.Status, _ map[int]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status, w.times = s, w.times+1
}

// Fault does nothing.
func (w *told) Fault(gpu.Fault) {}

func (w *told) last() (gpu.Health, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.status) == 0 {
		return "", w.times
	}
	return w.status[0].Health, w.times
}

func TestGPUsAreReleasedWhileDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := gputest.Devices(2, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)
		driver := &holder{Driver: gputest.New(two...), fails: errors.New("it hangs")}
		d := &devices{
			driver: driver, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler), letGo: letGo{takeUp: make(chan chan struct{})},
		}
		d.list(t.Context(), firstWait)
		w, host := &told{}, contract.Profile{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = d.run(ctx, w, func(context.Context, []int) map[int]bool { return nil }, func(change func(*contract.Profile)) { change(&host) })
		}()
		defer func() { stop(); <-ended }()
		time.Sleep(time.Minute)
		if err := d.resume(t.Context()); err != nil { // for a host that is not drained
			t.Error(err)
		}
		d.drain(true)
		synctest.Wait()
		if !driver.open() {
			t.Fatal("the GPUs were released though the driver hangs")
		}
		driver.mu.Lock()
		driver.fails = nil
		driver.mu.Unlock()
		time.Sleep(statusEvery)
		synctest.Wait()
		if driver.open() {
			t.Fatal("the GPUs were not released")
		}
		_, before := w.last()
		_, read := d.latest()
		driver.Set(two[:1]...) // the other GPU was split, or removed
		driver.SetStatus(gpu.Status{UUID: two[0].UUID, Health: gpu.Unhealthy, Detail: "broken by the upgrade"})
		time.Sleep(time.Hour)
		if all, err := d.listed(); len(all) != 2 || err != nil {
			t.Errorf("got %d GPUs, %v, want 2", len(all), err)
		}
		if status, at := d.latest(); len(status) != 2 || status[0].Health != gpu.Healthy || at != read {
			t.Errorf("while drained: got %+v of %s, want that of %s", status, at, read)
		}
		if _, times := w.last(); times != before || driver.calls > int(time.Hour/listEvery)+1 {
			t.Errorf("got %d more messages to the worker and %d calls of the driver, want 0 and few", times-before, driver.calls)
		}
		if err := d.resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if health, _ := w.last(); health != gpu.Unhealthy || !driver.open() {
			t.Errorf("resumed with a GPU that the worker knows as %s, want it unhealthy, with an open driver", health)
		}
		synctest.Wait()
		if len(host.GPUs) != 1 {
			t.Errorf("after the drain: got %d GPUs, want the one that is there now", len(host.GPUs))
		}
	})
}

// While the GPUs are released the last reading is shown, so a daemon that starts on a drained host reads them once.
func TestGPUsOfADrainedHostAreReadOnceAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &holder{Driver: gputest.New(gputest.Devices(2, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)...)}
		d := &devices{
			driver: driver, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler), letGo: letGo{takeUp: make(chan chan struct{})},
		}
		d.list(t.Context(), firstWait)
		d.drain(true)
		w := &told{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = d.run(ctx, w, func(context.Context, []int) map[int]bool { return nil }, func(func(*contract.Profile)) {})
		}()
		defer func() { stop(); <-ended }()
		began := time.Now()
		time.Sleep(time.Hour)
		if driver.open() {
			t.Error("the GPUs were not released")
		}
		if status, at := d.latest(); len(status) != 2 || status[0].Health != gpu.Healthy || !at.Equal(began) {
			t.Errorf("while drained: got %+v of %s, want that of %s", status, at, began)
		}
		if health, times := w.last(); health != gpu.Healthy || times != 1 {
			t.Errorf("got %d messages to the worker, the last with a %s GPU, want 1, healthy", times, health)
		}
	})
}

// The status of the GPUs is read as often as samples of usage are taken, every five seconds, so that each sample has a
// new status.
func TestGPUsAreReadForEachSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &holder{Driver: gputest.New(gputest.Devices(2, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)...)}
		d := &devices{
			driver: driver, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler), letGo: letGo{takeUp: make(chan chan struct{})},
		}
		d.list(t.Context(), firstWait)
		w := &told{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = d.run(ctx, w, func(context.Context, []int) map[int]bool { return nil }, func(func(*contract.Profile)) {})
		}()
		defer func() { stop(); <-ended }()
		synctest.Wait()
		_, before := w.last()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, times := w.last(); times-before != 12 {
			t.Errorf("got %d readings in a minute, want 12", times-before)
		}
	})
}
