package daemon

// The GPUs of a host that is drained and taken back into service.

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

// Release fails as long as the test wants it to.
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

func TestGPUsAreLetGoWhileDrained(t *testing.T) {
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
		if err := d.resume(t.Context()); err != nil { // of a host that is not drained
			t.Error(err)
		}
		d.drain(true)
		synctest.Wait()
		if !driver.open() {
			t.Fatal("let go though the driver hangs")
		}
		driver.mu.Lock()
		driver.fails = nil
		driver.mu.Unlock()
		time.Sleep(statusEvery)
		synctest.Wait()
		if driver.open() {
			t.Fatal("not let go")
		}
		_, before := w.last()
		_, read := d.latest()
		driver.Set(two[:1]...) // the other is split, or gone
		driver.SetStatus(gpu.Status{UUID: two[0].UUID, Health: gpu.Unhealthy, Detail: "broken by the upgrade"})
		time.Sleep(time.Hour)
		if all, err := d.listed(); len(all) != 2 || err != nil {
			t.Errorf("%d GPUs are known, %v", len(all), err)
		}
		if status, at := d.latest(); len(status) != 2 || status[0].Health != gpu.Healthy || at != read {
			t.Errorf("known while drained: %+v of %s, want of %s", status, at, read)
		}
		if _, times := w.last(); times != before || driver.calls > int(time.Hour/listEvery)+1 {
			t.Errorf("the worker was told %d times more, the driver asked %d times", times-before, driver.calls)
		}
		if err := d.resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if health, _ := w.last(); health != gpu.Unhealthy || !driver.open() {
			t.Errorf("resumed with a GPU that is %s to the worker", health)
		}
		synctest.Wait()
		if len(host.GPUs) != 1 {
			t.Errorf("%d GPUs after the drain, want those that there are now", len(host.GPUs))
		}
	})
}

// What is shown of GPUs while they are let go is what was read last, so a daemon that starts on a drained host reads it once.
func TestGPUsOfAHostDrainedBeforeTheStart(t *testing.T) {
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
			t.Error("not let go")
		}
		if status, at := d.latest(); len(status) != 2 || status[0].Health != gpu.Healthy || !at.Equal(began) {
			t.Errorf("known while drained: %+v of %s, want of %s", status, at, began)
		}
		if health, times := w.last(); health != gpu.Healthy || times != 1 {
			t.Errorf("the worker was told %d times, last of a GPU that is %s", times, health)
		}
	})
}

// The status of the GPUs is read as often as samples of usage are taken, every five seconds, so that each sample is new.
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
			t.Errorf("read %d times in a minute", times-before)
		}
	})
}
