package placing

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// The cluster of the benchmarks has as many machines, and nearly as many arrivals, as the public traces.
const (
	benchMachines = 1213
	benchArrivals = 11_000
)

// cpuTime is the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRun is one run of the experiment, by the default policy and by the best published one.
func BenchmarkRun(b *testing.B) {
	machines, arrivals := someCluster(benchMachines, benchArrivals, 1)
	for _, name := range []string{"frag", FGD} {
		b.Run(name, func(b *testing.B) {
			begin := cpuTime(b)
			for b.Loop() {
				if _, err := Run(b.Context(), Config{Machines: machines, Arrivals: arrivals, Policy: name, Seed: 1}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpuTime(b)-begin).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// BenchmarkDecision is one decision of the default policy on a cluster that is half full.
func BenchmarkDecision(b *testing.B) {
	machines, arrivals := someCluster(benchMachines, benchArrivals, 1)
	for _, candidates := range []int{64, benchMachines} {
		b.Run(fmt.Sprint(candidates), func(b *testing.B) {
			cfg := Config{Machines: machines, Arrivals: arrivals, Policy: "frag", Candidates: candidates, Seed: 1}
			c, err := newCluster(machines)
			if err != nil {
				b.Fatal(err)
			}
			rs, err := c.requests(arrivals)
			if err != nil {
				b.Fatal(err)
			}
			ch, err := newChooser(&cfg, c, rs)
			if err != nil {
				b.Fatal(err)
			}
			used := 0
			for i := 0; used < c.milli/2; i++ {
				d, err := c.decide(ch, rs[i])
				if err != nil {
					b.Fatal(err)
				}
				if d.Machine >= 0 {
					used += rs[i].all()
				}
			}
			begin, i := cpuTime(b), 0
			for b.Loop() {
				ch.choose(rs[i%len(rs)])
				i++
			}
			b.ReportMetric(float64((cpuTime(b)-begin).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
		})
	}
}
