package session

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

// TestSimulatedSizesMatchEncodings checks that the lengths by which a simulation counts messages are close to those of their
// encoding.
func TestSimulatedSizesMatchEncodings(t *testing.T) {
	l := load.Load{}
	for i := range 12 {
		l.Machines = append(l.Machines, load.Machine{Name: fmt.Sprintf("n%05d", i), CPUs: 64_000, Memory: 512 << 30, GPUs: 8, Model: "H100", DeviceMemory: 80 << 30})
	}
	for i := range 100 {
		spec := job.DefaultSpec()
		spec.Resources = job.Resources{CPUs: 4000, GPUs: []int{1, 1, 2, 4, 8}[i%5], Memory: 16 << 30}
		switch i % 10 {
		case 3:
			spec.Nodes = 3
		case 5:
			spec.Array = "0-9"
		case 7:
			spec.Preemptible, spec.Priority = true, 0
		}
		l.Jobs = append(l.Jobs, load.Job{Name: fmt.Sprint(i), User: fmt.Sprint("user", i%7), Submit: time.Duration(i) * 6 * time.Second, Runs: time.Duration(1+i%9) * time.Minute, Spec: spec})
	}
	type sum struct{ n, told, is int }
	sums := map[string]*sum{}
	w, err := sim.New(sim.Config{
		Seed: 1, Load: l, Schedulers: 3, Known: true, Shares: fairshare.Weights{HalfLife: time.Hour},
		Message: func(msg any, bytes int) {
			f, err := toWire(msg)
			if err != nil {
				t.Fatalf("%T: %v", msg, err)
			}
			data, err := appendFrame(nil, f)
			if err != nil {
				t.Fatalf("%T: %v", msg, err)
			}
			name, is := fmt.Sprintf("%T", msg), len(data)
			if s, ok := msg.(contract.Start); ok && bytes < len(s.File.Text()) { // the session has carried this file before
				is -= len(s.File.Text())
			}
			if sums[name] == nil {
				sums[name] = &sum{}
			}
			sums[name].n++
			sums[name].told += bytes
			sums[name].is += is
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(sums) < 11 {
		t.Errorf("got %d kinds of messages, want at least 11", len(sums))
	}
	for name, s := range sums {
		told, is := float64(s.told)/float64(s.n), float64(s.is)/float64(s.n)
		t.Logf("%-20s %6d messages of %.0f bytes, counted as %.0f", name, s.n, is, told)
		if told < 0.85*is || told > 1.15*is {
			t.Errorf("%s: a message has %.0f bytes and is counted as %.0f, want within 15 %%", name, is, told)
		}
	}
}
