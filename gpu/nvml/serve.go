//go:build cgo && !nonvml

package nvml

// Serve: the child's side, the only code that calls the library.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvidia"
)

// Serve answers requests from in on out, until in ends, ctx ends, or it finds that there are no GPUs. It needs a
// process of its own, which must end when Serve returns, because a call into the library may still be in progress.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return serve(ctx, nvml.New(), in, out)
}

func serve(ctx context.Context, lib nvml.Interface, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := &writer{to: json.NewEncoder(out)}
	h := initialize(lib)
	if err := w.send(message{Hello: &h}); err != nil || h != (hello{}) {
		return err
	}
	// These run in goroutines, so that the end of in is noticed while a call hangs.
	requests, ended := make(chan request), make(chan error, 2)
	go func() {
		defer close(requests)
		ended <- readRequests(ctx, in, requests)
	}()
	go func() {
		if err := answer(ctx, lib, requests, w); err != nil {
			ended <- err
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// initialize loads the library. Nothing else may be called before it succeeds: a call into a library that is not
// loaded ends the process.
func initialize(lib nvml.Interface) hello {
	switch ret := lib.Init(); {
	case ret == nvml.ERROR_LIBRARY_NOT_FOUND:
		return hello{None: "libnvidia-ml.so.1 is not installed"}
	case ret == nvml.ERROR_DRIVER_NOT_LOADED:
		return hello{None: "the kernel's nvidia module is not loaded"}
	case ret != nvml.SUCCESS:
		return hello{Error: fmt.Sprintf("start the library: %s", ret)}
	}
	switch n, ret := lib.DeviceGetCount(); {
	case ret != nvml.SUCCESS:
		return hello{Error: fmt.Sprintf("count the GPUs: %s", ret)}
	case n == 0:
		return hello{None: "the driver lists no GPU"}
	}
	return hello{}
}

// readRequests passes on requests until the input ends.
func readRequests(ctx context.Context, in io.Reader, to chan<- request) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, maxRequest), maxRequest)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("nvml: request %.60q: %w", lines.Text(), err)
		}
		select {
		case to <- r:
		case <-ctx.Done():
			return nil
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("nvml: read requests: %w", err)
	}
	return nil
}

// answer answers requests one by one, and reports faults meanwhile.
func answer(ctx context.Context, lib nvml.Interface, requests <-chan request, w *writer) error {
	c := &collector{library: library{lib: lib, symbols: map[string]bool{}}, kernel: nvidia.NewKernel("/")}
	c.at = func(to at) { _ = w.send(message{At: &to}) } // if out fails, the next answer fails too
	c.events.wait = func(s nvml.EventSet, of map[nvml.Device]gpu.Device) {
		go waitEvents(ctx, s, of, func(f gpu.Fault) { _ = w.send(message{Fault: &f}) })
	}
	for r := range requests {
		out := reply{ID: r.ID}
		c.skip = r.Skip
		var err error
		switch r.Op {
		case opList:
			out.Devices, out.Notes, err = c.list()
			out.Library = loaded()
		case opStatus:
			out.Statuses, err = c.status()
		default:
			err = fmt.Errorf("unknown request: %.20q", r.Op)
		}
		if err != nil {
			out.Error = err.Error()
		}
		if err := w.send(message{Reply: &out}); err != nil {
			return err
		}
	}
	return nil
}

// writer writes messages one at a time.
type writer struct {
	mu sync.Mutex
	to *json.Encoder // guarded by mu
}

func (w *writer) send(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.to.Encode(m); err != nil {
		return fmt.Errorf("nvml: write a message: %w", err)
	}
	return nil
}
