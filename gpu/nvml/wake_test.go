package nvml

// Each card has its own deadline.

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
)

var eightGPUs = gputest.Devices(8, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)

// slowly answers like a child whose cards take this long, one after another; 0 means for ever.
func (p *play) slowly(wake func(card int) time.Duration, status func(card int) time.Duration) func(life) {
	return func(l life) {
		l.say(p.t, message{Hello: &hello{}})
		for r := range l.requests {
			out := reply{ID: r.ID}
			for i, dev := range eightGPUs {
				if slices.Contains(r.Skip, i) {
					continue
				}
				l.say(p.t, message{At: &at{Card: i, Wake: r.Op == opList}})
				took := status
				if r.Op == opList {
					took = wake
				}
				pause := took(i)
				if pause == 0 {
					<-l.killed
					return
				}
				time.Sleep(pause)
				if dev.Links = nil; r.Op == opList {
					out.Devices = append(out.Devices, dev)
				} else {
					out.Statuses = append(out.Statuses, gpu.Status{UUID: dev.UUID, Health: gpu.Healthy})
				}
			}
			l.say(p.t, message{Reply: &out})
		}
	}
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestEightSleepingGPUsAreListed(t *testing.T) {
	for _, each := range []time.Duration{time.Second, 3 * time.Second, 8 * time.Second, 29 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := &play{}
			p.scripts = []func(life){p.slowly(always(each), always(time.Millisecond))}
			d, log := stage(t, p)
			began := time.Now()
			mustList(t, d, 8)
			if took := time.Since(began); took != 8*each || p.starts != 1 || lines(log) != 0 {
				t.Errorf("%s each: %s, %d children, want 8 times as long, 1 child and no log: %s", each, took, p.starts, log)
			}
			if got := health(t, d); strings.Count(got, "healthy") != 8 {
				t.Errorf("health %s, want 8 healthy", got)
			}
		})
	}
}

// A card that never wakes costs the others one deadline, and is tried again later.
func TestGPUThatDoesNotWakeIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		wakes := false
		p.scripts = []func(life){p.slowly(func(card int) time.Duration {
			if card == 3 && !wakes {
				return 0
			}
			return time.Second
		}, always(time.Millisecond))}
		d, _ := stage(t, p)
		if _, err := d.List(t.Context()); err == nil || !strings.Contains(err.Error(), "GPU 3") {
			t.Errorf(`List: %v, want an error and "GPU 3" in it`, err)
		}
		time.Sleep(minPause)
		mustList(t, d, 7)
		if got := health(t, d); strings.Count(got, "healthy") != 7 || p.starts != 2 {
			t.Errorf("health %s, %d children, want 7 healthy and 2", got, p.starts)
		}
		wakes = true
		time.Sleep(minSkip)
		mustList(t, d, 8)
	})
}

// If one card hangs, only this card is unknown.
func TestOnlyTheGPUThatHangsIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		hangs := true
		p.scripts = []func(life){p.slowly(always(time.Millisecond), func(card int) time.Duration {
			if card == 5 && hangs {
				return 0
			}
			return 4 * time.Second // 32 s in all
		})}
		d, _ := stage(t, p)
		mustList(t, d, 8)
		if got := health(t, d); strings.Count(got, "unknown") != 8 {
			t.Errorf("while it hangs: %s, want 8 unknown", got)
		}
		time.Sleep(minPause)
		statuses, err := d.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustList(t, d, 8) // nobody knows yet that it has gone
		for i, s := range statuses {
			if want := i != 5; want != (s.Health == gpu.Healthy) || !want && s.Detail != "it does not answer" {
				t.Errorf("GPU %d: %s, %s, want only GPU 5 without an answer", i, s.Health, s.Detail)
			}
		}
		hangs = false
		time.Sleep(maxSkip)
		mustList(t, d, 8)
		if got := health(t, d); strings.Count(got, "healthy") != 8 {
			t.Errorf("once it answers: %s, want 8 healthy", got)
		}
	})
}

// A card that hangs for good is tried less and less often over hours, in whichever call it hangs.
func TestTriesOfAHungGPUAreBounded(t *testing.T) {
	hangs := func(card int) time.Duration {
		if card == 5 {
			return 0
		}
		return time.Millisecond
	}
	well := always(time.Millisecond)
	for name, script := range map[string]func(*play) func(life){
		"status": func(p *play) func(life) { return p.slowly(well, hangs) },
		"list":   func(p *play) func(life) { return p.slowly(hangs, well) },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &play{}
			p.scripts = []func(life){script(p)}
			d, _ := stage(t, p)
			unknown := 0
			for i := range 6 * 60 { // an hour of polls
				time.Sleep(10 * time.Second)
				if i%3 == 0 {
					_, _ = d.List(t.Context())
				}
				if statuses, err := d.Status(t.Context()); err != nil || statuses[0].Health != gpu.Healthy {
					unknown++
				}
			}
			if p.starts > 15 || unknown > 15 {
				t.Errorf("%s hangs: %d children in an hour; all unknown %d times, want at most 15 and at most 15", name, p.starts, unknown)
			}
		})
	}
}
