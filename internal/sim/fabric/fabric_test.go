package fabric

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// small has two racks of two hosts and two spines, with round numbers: a byte takes 8 ns on the link of a host and 8 ns
// to a spine.
func small(t testing.TB) *Topology {
	top, err := LeafSpine{
		Spines: 2, Leaves: 2, Hosts: 2, Oversubscription: 1, Bandwidth: Gbps,
		HostLatency: 1000, SpineLatency: 5000,
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func build(t testing.TB, cfg Config, top *Topology) (*Fabric, *Clock) {
	c := &Clock{}
	f, err := New(cfg, top, c)
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

// arrival sends a message and records when it arrives.
func arrival(f *Fabric, from, to, bytes int, into *time.Duration) {
	*into = -1
	f.Send(from, to, bytes, func() { *into = f.time.Now() })
}

func TestMessageTakesItsLatencyAndSerialisation(t *testing.T) {
	f, c := build(t, DefaultConfig(), small(t))
	var same, rack, far time.Duration
	arrival(f, 0, 0, 100, &same)
	arrival(f, 0, 1, 100, &rack)
	c.Run(time.Second)
	arrival(f, 0, 3, 100, &far)
	c.Run(2 * time.Second)
	if same != 0 {
		t.Errorf("a message to the same host took %v, want 0", same)
	}
	if want := time.Duration(2 * (800 + 1000)); rack != want { // two links
		t.Errorf("a message within the rack took %v, want %v", rack, want)
	}
	if want := time.Second + 2*(800+1000) + 2*(800+5000); far != want { // four links
		t.Errorf("a message over a spine arrived at %v, want %v", far, want)
	}
	if h := f.Totals().Hops; h != 6 {
		t.Errorf("%d hops, want 6", h)
	}
}

func TestMessagesWaitForEarlierOnes(t *testing.T) {
	f, c := build(t, DefaultConfig(), small(t))
	var first, second, third time.Duration
	arrival(f, 0, 1, 1000, &first) // 8 µs on each link
	arrival(f, 0, 1, 100, &second) // waits 8 µs at the host, then nothing at the leaf
	arrival(f, 2, 1, 1000, &third) // meets nobody on the link to host 1: the first ones have passed
	c.Run(time.Second)
	if first != 18_000 || second != 8000+800+1000+800+1000+7200 {
		t.Errorf("arrived at %v and %v, want 18_000 and %v", first, second, 8000+800+1000+800+1000+7200)
	}
	if third != 4*8000+2*1000+2*5000 {
		t.Errorf("the third arrived at %v, want %v", third, 4*8000+2*1000+2*5000)
	}
	var up LinkStats
	for _, l := range f.Stats().Links {
		if l.From == 0 {
			up = l
		}
	}
	if up.QueueMost != 8000 || up.QueueMean != 4000 || up.Control != 1100 || up.Messages != 2 || up.Flows != 1 {
		t.Errorf("the link of host 0: %+v, want queues of 8000 at most and 4000 on average, and 1100 bytes of 2 messages", up)
	}
}

// On a link of a busy network no two messages are sent at the same time, and messages between two hosts keep their
// order.
func TestMessagesOnALinkDoNotOverlap(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := newLink(Link{Latency: 7, Bandwidth: 8 * Gbps}, 0) // a nanosecond for each byte
		type booking struct{ from, to int64 }
		var all []booking
		last := map[int]booking{} // by pair of hosts: when its last message arrived at the link, and when it left
		now := int64(0)
		for range 200 {
			now += r.Int64N(40)
			pair := r.IntN(4)
			at := max(now+int64(pair)*50, last[pair].from) // some pairs are farther from this link
			bytes := r.IntN(60)
			out := x.book(at, bytes) - 7
			if out-int64(bytes) < at || out < last[pair].to {
				t.Fatalf("seed %d: a message of %d bytes came at %d and left at %d, but the one before it left at %d", seed, bytes, at, out, last[pair].to)
			}
			last[pair] = booking{at, out}
			for _, b := range all {
				if out > b.from && out-int64(bytes) < b.to {
					t.Fatalf("seed %d: sent from %d to %d, but another one from %d to %d", seed, out-int64(bytes), out, b.from, b.to)
				}
			}
			if bytes > 0 {
				all = append(all, booking{out - int64(bytes), out})
			}
		}
	}
}

// A simulation may start before 0. This changes no times.
func TestSimulationMayStartBeforeZero(t *testing.T) {
	f, c := build(t, DefaultConfig(), small(t))
	c.now = -time.Minute
	if len(f.Stats().Links[0].Use) != 0 {
		t.Error("there are bins before 0")
	}
	var first, second, done time.Duration
	for range 100_000 {
		f.Send(2, 3, 1000, func() {}) // as much as the link of host 2 can carry in 800 ms
	}
	c.Run(-58 * time.Second)
	arrival(f, 0, 1, 1000, &first)
	arrival(f, 0, 1, 1000, &second)
	copied(f, 2, 3, gigabit, &done)
	c.Run(time.Minute)
	start := -58 * time.Second
	if first != start+18_000 || second != start+26_000 || done != start+time.Second+2000 {
		t.Errorf("arrived after %v and %v, copied after %v, want 18 µs, 26 µs and a second", first-start, second-start, done-start)
	}
}

func TestCostHopsAndPathBetweenHosts(t *testing.T) {
	f, _ := build(t, DefaultConfig(), small(t))
	frame := time.Duration(12_000) // at 1 Gb/s
	for _, x := range []struct {
		from, to, hops int
		cost           time.Duration
	}{{0, 0, 0, 0}, {0, 1, 2, 2*frame + 2000}, {0, 3, 4, 4*frame + 12_000}} {
		if f.Cost(x.from, x.to) != x.cost || f.Hops(x.from, x.to) != x.hops || !f.Reachable(x.from, x.to) {
			t.Errorf("%d to %d: cost %v, %d hops, reachable %v, want those of the case", x.from, x.to, f.Cost(x.from, x.to), f.Hops(x.from, x.to), f.Reachable(x.from, x.to))
		}
		if p := f.Path(x.from, x.to); len(p) != x.hops+1 || p[0] != x.from || p[len(p)-1] != x.to {
			t.Errorf("%d to %d: path %v, want one with the hops between both", x.from, x.to, p)
		}
	}
}

func large(t testing.TB) *Topology {
	top, err := LeafSpine{
		Spines: 8, Leaves: 313, Hosts: 32, Machines: 10_000, Oversubscription: 2, Bandwidth: 25 * Gbps,
		HostLatency: 1000, SpineLatency: 2000,
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// BenchmarkSend sends a message between two of 10,000 hosts, with its event on the timeline. In "pairs" each host has
// 64 others to which it sends, like owners and hosts; in "any" all pairs are new.
func BenchmarkSend(b *testing.B) {
	top := large(b)
	for _, x := range []struct {
		name string
		to   func(i int) int
	}{
		{"pairs", func(i int) int { return int(mix(uint64(i%640_000)) % 10_000) }},
		{"any", func(i int) int { return int(mix(uint64(i)) % 10_000) }},
	} {
		b.Run(x.name, func(b *testing.B) {
			f, c := build(b, DefaultConfig(), top)
			arrived := 0
			arrive := func() { arrived++ }
			for leaf := range 313 {
				f.Cost(0, min(leaf*32, 9999))
			}
			b.ReportAllocs()
			before := cpu(b)
			b.ResetTimer()
			for i := range b.N {
				f.Send(i%10_000, x.to(i), 200, arrive)
				if i%1000 == 999 {
					c.Run(c.Now() + 100*time.Microsecond)
				}
			}
			c.Run(c.Now() + time.Second)
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
			if arrived != b.N {
				b.Fatalf("%d messages arrived, want %d", arrived, b.N)
			}
		})
	}
}

// cpu returns the CPU time of this process, which other processes on the machine hardly affect.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkBuild(b *testing.B) {
	top := large(b)
	for range b.N {
		f, _ := build(b, DefaultConfig(), top)
		for leaf := range 313 {
			f.Cost(0, min(leaf*32, 9999))
		}
	}
}

func BenchmarkBuildFatTree(b *testing.B) {
	top, err := FatTree{K: 36, Bandwidth: 25 * Gbps, Latency: 1000}.Build()
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		f, _ := build(b, DefaultConfig(), top)
		before := cpu(b)
		for leaf := range 648 {
			f.Cost(0, leaf*18)
		}
		b.ReportMetric((cpu(b) - before).Seconds(), "cpu-s/op")
	}
}
