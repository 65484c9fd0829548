package fabric

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// copied starts a copy and records when it is done.
func copied(f *Fabric, from, to int, bytes int64, into *time.Duration) {
	*into = -1
	f.Copy(from, to, bytes, func() { *into = f.time.Now() })
}

const gigabit = 125_000_000 // bytes in a second, of a host in small

func TestCopiesShareALink(t *testing.T) {
	f, c := build(t, DefaultConfig(), small(t))
	var alone, first, second, same time.Duration
	copied(f, 0, 1, gigabit, &alone)
	copied(f, 2, 2, gigabit, &same)
	c.Run(10 * time.Second)
	if want := time.Second + 2000; alone != want || same != 0 {
		t.Errorf("alone %v, want %v; on the same host %v", alone, want, same)
	}
	copied(f, 0, 1, gigabit, &first)
	c.At(c.Now()+500*time.Millisecond, func() { copied(f, 2, 1, gigabit, &second) })
	c.Run(20 * time.Second)
	// The first moves half alone and the rest at half the speed. Then the second has half left, alone.
	if want := 11500*time.Millisecond + 2000; first != want {
		t.Errorf("the first was done at %v, want %v", first, want)
	}
	if want := 12*time.Second + 12_000; second != want {
		t.Errorf("the second was done at %v, want %v", second, want)
	}
}

func TestControlMessagesTakeBandwidthFromCopies(t *testing.T) {
	f, c := build(t, DefaultConfig(), small(t))
	var before, done time.Duration
	// Half of the link of host 0: 625 bytes every 10 µs.
	sent := 0
	var send func()
	send = func() {
		f.Send(0, 1, 625, func() {})
		if sent++; sent < 400_000 {
			c.At(c.Now()+10_000, send)
		}
	}
	send()
	c.Run(time.Second)
	copied(f, 0, 1, gigabit, &done)
	arrival(f, 0, 1, 625, &before)
	c.Run(10 * time.Second)
	if want := time.Second + 2*(5000+1000); before-want > 5000 {
		t.Errorf("a message beside a copy arrived at %v, want %v", before, want)
	}
	if d := done - time.Second; d < 1990*time.Millisecond || d > 2010*time.Millisecond {
		t.Errorf("the copy took %v, want 2 s: control messages have half of the link", d)
	}
}

func TestCopiesWaitForRoutesAndEndWithTheirHost(t *testing.T) {
	top := small(t)
	f, c := build(t, DefaultConfig(), top)
	var moved, waits, lost, never time.Duration
	copied(f, 0, 3, gigabit, &moved)
	copied(f, 2, 1, gigabit, &lost)
	c.At(500*time.Millisecond, func() {
		f.SetNode(f.Topology().Find("host1"), false)
		copied(f, 0, 1, gigabit, &never)
		fl := f.bulk.flows[0]
		f.SetLink(int(fl.path[1]>>1), false) // its spine
	})
	c.Run(4 * time.Second)
	// It stopped for the convergence time, as the last one did not slow it down.
	if want := 1200*time.Millisecond + 12_000; moved != want {
		t.Errorf("the copy was done at %v, want %v", moved, want)
	}
	if lost >= 0 || never >= 0 || f.Totals().CopiesLost != 2 {
		t.Errorf("done at %v and %v although a host failed: %+v, want less than 0, less than 0 and CopiesLost 2", lost, never, f.Totals())
	}
	heal := f.Cut(f.Below(top.Hosts))
	copied(f, 0, 3, gigabit, &waits)
	c.Run(100 * time.Second)
	if waits >= 0 {
		t.Error("a copy without a path was completed")
	}
	heal()
	c.Run(200 * time.Second)
	if want := 101200*time.Millisecond + 12_000; waits != want {
		t.Errorf("done at %v, want %v", waits, want)
	}
}

// A copy that changes its path has the latency of the new one.
func TestCopyOnANewPathHasItsLatency(t *testing.T) {
	top, err := Parse("net.yaml", []byte(strings.Replace(twoRacks, "400Mbps", "100Gbps", 1)))
	if err != nil {
		t.Fatal(err)
	}
	f, c := build(t, DefaultConfig(), top)
	var done time.Duration
	copied(f, 0, 1, 3_125_000_000, &done) // takes a second
	c.At(500*time.Millisecond, func() { f.SetNode(top.Find("spine"), false) })
	c.Run(time.Minute)
	if want := 1200*time.Millisecond + 11*time.Microsecond; done != want { // over the link between the leaves
		t.Errorf("done at %v, want %v", done, want)
	}
}

// The bytes of each completed copy are counted once on each link of its path. Faults do not change that.
func TestBytesOfCopiesAreCountedOncePerLink(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		top := small(t)
		f, c := build(t, DefaultConfig(), top)
		const n = 600 // many
		var sum int64
		done := 0
		for range n {
			from, to := r.IntN(4), r.IntN(4)
			bytes := r.Int64N(1_000_000)
			if from != to {
				sum += bytes
			}
			c.At(time.Duration(r.Int64N(int64(time.Second))), func() { f.Copy(from, to, bytes, func() { done++ }) })
		}
		for range 10 {
			l := 4 + r.IntN(4) // between leaves and spines
			at := time.Duration(r.Int64N(int64(time.Second)))
			c.At(at, func() { f.SetLink(l, false) })
			c.At(at+time.Duration(r.Int64N(int64(time.Second))), func() { f.SetLink(l, true) })
		}
		c.Run(time.Hour)
		if done != n {
			t.Fatalf("seed %d: %d copies are done, want %d", seed, done, n)
		}
		var out, in int64
		for _, l := range f.Stats().Links {
			if l.From < top.Hosts {
				out += l.Bulk
			}
			if l.To < top.Hosts {
				in += l.Bulk
			}
			used := 0.0
			for _, u := range l.Use {
				used += float64(u) * f.Stats().Bin.Seconds() * float64(l.Bandwidth) / 8
			}
			if diff := used - float64(l.Bulk); diff > float64(l.Bulk)/1e5+1 || -diff > float64(l.Bulk)/1e5+1 {
				t.Errorf("seed %d: %d bytes on a link, want %f as by its use over time", seed, l.Bulk, used)
			}
		}
		if out != sum || in != sum {
			t.Errorf("seed %d: %d bytes left hosts and %d reached them, want %d", seed, out, in, sum)
		}
		if len(c.queue) != 0 || f.bulk.solveAt != never {
			t.Errorf("seed %d: %d events are left, want none", seed, len(c.queue))
		}
	}
}

func TestUseOfALinkIsAtMostItsBandwidth(t *testing.T) {
	f, c := build(t, DefaultConfig(), small(t))
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		c.At(time.Duration(r.Int64N(int64(20*time.Second))), func() { f.Copy(r.IntN(4), r.IntN(4), 40_000_000, func() {}) })
	}
	c.Run(500 * time.Second) // more than MaxBins
	s := f.Stats()
	if s.Bin != 4*time.Second {
		t.Errorf("bins of %v, want 4s", s.Bin)
	}
	full := 0
	for _, l := range s.Links {
		for _, u := range l.Use {
			if u > 1.0001 {
				t.Errorf("a link is used for %f, want at most 1.0001", u)
			}
			if u > 0.99 {
				full++
			}
		}
	}
	if full == 0 {
		t.Error("no link was ever full")
	}
}

// BenchmarkCopies measures 10,000 copies at once, whose cost is bounded.
func BenchmarkCopies(b *testing.B) {
	top := large(b)
	for range b.N {
		f, c := build(b, DefaultConfig(), top)
		r := rand.New(rand.NewPCG(3, 3))
		done := 0
		for range 10_000 {
			c.At(time.Duration(r.Int64N(int64(time.Second))), func() {
				f.Copy(r.IntN(10_000), r.IntN(10_000), 1_000_000_000, func() { done++ })
			})
		}
		before := cpu(b)
		c.Run(time.Hour)
		b.ReportMetric((cpu(b) - before).Seconds(), "cpu-s/op")
		if done != 10_000 {
			b.Fatalf("%d are done, want 10_000", done)
		}
	}
}
