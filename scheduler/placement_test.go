package scheduler

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/step"
)

// gpuHost is a Hello with 8 CPUs and so many GPUs, all free.
func gpuHost(p job.Peer, gpus int) contract.Hello {
	m := contract.Hello{
		Profile: contract.Profile{Name: string(p), Store: "s", CPUs: 8, Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: 8},
	}
	for i := range gpus {
		d := gpu.Device{UUID: fmt.Sprint(p, "-", i), Class: "h100-80gb", Memory: 80e9}
		m.Profile.GPUs = append(m.Profile.GPUs, d)
		m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
	}
	return m
}

// The reason for a host is that of the moment when the host was chosen, even if the host reports before the start that
// the devices are taken.
func TestReasonForAHostIsThatOfItsChoice(t *testing.T) {
	for _, c := range []struct {
		name string
		gpus int
		full bool // the host is full when the task is submitted
		want string
	}{
		{"all GPUs", 2, false, "least fragmentation: leaves 0 of 2 GPUs"},
		{"one GPU", 1, false, "least fragmentation: leaves 1 of 2 GPUs"},
		{"no GPU", 0, false, "least waste: leaves 7 of 8 CPUs"},
		{"queued", 1, true, "no host had room: of those where it queued this one was the first to commit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newBench(t, 0, 0)
			x.step(step.SessionUp{Peer: "h"}, step.FromWorker{Peer: "h", Msg: gpuHost("h", 2)})
			if c.full {
				x.step(step.FromWorker{Peer: "h", Msg: contract.Availability{}})
			}
			s := benchSpec(0)
			s.Resources.GPUs = c.gpus
			x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
			x.step(step.FromWorker{Peer: "h", Msg: contract.Availability{}})
			var why []string
			x.sentOffer(t, func(m contract.Offer) {
				commit := step.FromWorker{Peer: "h", Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}}
				for fx := x.core.Step(x.now, commit); ; {
					for _, n := range fx.Notices {
						if n.Kind == step.TaskStarted {
							why = append(why, n.Detail)
						}
					}
					if len(fx.Propose) == 0 {
						break
					}
					x.index++
					fx = x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
				}
			})
			if len(why) != 1 || why[0] != c.want {
				t.Errorf("reasons %q, want %q", why, c.want)
			}
		})
	}
}

// twins are two cores that get the same events. One of them is asked between the steps where its tasks would go.
type twins struct {
	t           *rapid.T
	asked, left *Core
	now         time.Time
	index       uint64
	offers      []step.Outgoing
	verdicts    map[place.Verdict]int
}

func newTwins(t *rapid.T) *twins {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "h0", 7, 1
	w := &twins{
		t: t, now: storyStart, asked: NewCore(cfg, Saved{}, storyStart), left: NewCore(cfg, Saved{}, storyStart),
		verdicts: map[place.Verdict]int{},
	}
	w.commit(job.Committed{Lead: true})
	return w
}

func (w *twins) commit(m job.Committed) {
	w.index++
	m.Index, m.Epoch = w.index, job.Epoch{Term: 1}
	w.step(step.Committed{Committed: m})
}

func (w *twins) step(events ...step.Event) {
	for again := true; again; again = w.asked.plan.again {
		w.ask()
		fx := w.asked.Step(w.now, events...)
		if other := w.left.Step(w.now, events...); !reflect.DeepEqual(fx, other) {
			w.t.Fatalf("the core that was asked does\n%+v\nwant what the other does\n%+v", fx, other)
		}
		events = nil
		for _, o := range fx.Send {
			if _, ok := o.Msg.(contract.Offer); ok {
				w.offers = append(w.offers, o)
			}
		}
		if len(fx.Propose) > 0 {
			w.commit(job.Committed{Records: fx.Propose})
		}
	}
	if a, b := w.asked.Wake(), w.left.Wake(); !a.Equal(b) {
		w.t.Fatalf("the core that was asked wakes at %s, want %s as the other", a, b)
	}
}

// ask asks twice where each task would go, and which task each host with new capacity would take.
func (w *twins) ask() {
	c := w.asked
	from := int(c.turn.Steps) % max(c.hosts.fleet.Slots(), 1)
	for _, e := range c.entries.byID {
		for _, t := range e.tasks {
			if t.shape == nil {
				continue
			}
			d := c.placement.decide(t, from)
			w.verdicts[d.Verdict]++
			w.same(decisionText(d), func() string { return decisionText(c.placement.decide(t, from)) })
			if t.dispatch != nil {
				more := func() string {
					next, passed := c.placement.more(t.dispatch, from)
					return fmt.Sprintf("%p %p", next, passed)
				}
				w.same(more(), more)
			}
		}
	}
	for _, h := range c.hosts.workers {
		for _, next := range []func(*worker, *int) pick{c.placement.nextParked, c.placement.nextQueued} {
			find := func() string {
				looks := lookLimit
				found := next(h, &looks)
				return fmt.Sprintf("%p %v %v", found.task, found.stopped, found.again)
			}
			w.same(find(), find)
		}
	}
}

func (w *twins) same(first string, again func() string) {
	if second := again(); second != first {
		w.t.Fatalf("decided %s, then %s, want the same", first, second)
	}
}

func decisionText(d place.Decision) string {
	text := fmt.Sprintf("%s %v %q until %v", d.Verdict, d.Devices, d.Why, d.Until)
	if d.Host != nil {
		text += " at " + d.Host.Name()
	}
	for _, h := range d.Queue {
		text += " queue " + h.Name()
	}
	for _, a := range d.Again {
		text += fmt.Sprintf(" again %s %v", a.Host.Name(), a.At)
	}
	return text
}

// A decision has no effect: the same question has the same answer each time, and all else happens as if nobody had
// asked.
func TestDecisionsArePure(t *testing.T) {
	verdicts := map[place.Verdict]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t)
		w.verdicts = verdicts
		var tok step.Token
		seq := map[job.Peer]uint64{}
		peer := func() job.Peer { return job.Peer(fmt.Sprint("h", rapid.IntRange(0, 3).Draw(t, "host"))) }
		t.Repeat(map[string]func(*rapid.T){
			"hello": func(t *rapid.T) {
				p := peer()
				seq[p] = 0
				w.step(step.SessionUp{Peer: p}, step.FromWorker{Peer: p, Msg: gpuHost(p, rapid.IntRange(0, 2).Draw(t, "gpus"))})
			},
			"free": func(t *rapid.T) {
				p := peer()
				m := gpuHost(p, rapid.IntRange(0, 2).Draw(t, "gpus"))
				m.Free.CPUs = rapid.IntRange(0, 8).Draw(t, "cpus")
				seq[p]++
				w.step(step.FromWorker{Peer: p, Msg: contract.Availability{Seq: seq[p], Free: m.Free, Draining: rapid.IntRange(0, 9).Draw(t, "drain") == 0}})
			},
			"submit": func(t *rapid.T) {
				s := benchSpec(0)
				s.Resources.CPUs, s.Resources.GPUs = rapid.IntRange(0, 5).Draw(t, "cpus"), rapid.IntRange(0, 2).Draw(t, "gpus")
				s.Priority = rapid.IntRange(0, 2).Draw(t, "priority")
				tok++
				w.step(step.Submit{Token: tok, Submission: job.Submission{User: rapid.SampledFrom([]string{"amy", "bob"}).Draw(t, "user"), Spec: s}})
			},
			"answer": func(t *rapid.T) {
				if len(w.offers) == 0 {
					return
				}
				i := rapid.IntRange(0, len(w.offers)-1).Draw(t, "offer")
				o := w.offers[i]
				w.offers = append(w.offers[:i], w.offers[i+1:]...)
				m, _ := o.Msg.(contract.Offer)
				if rapid.Bool().Draw(t, "commit") {
					w.step(step.FromWorker{Peer: o.To, Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}})
					return
				}
				word := rapid.SampledFrom([]string{job.ReasonResources, job.ReasonQuota, "Admission"}).Draw(t, "word")
				free := gpuHost(o.To, rapid.IntRange(0, 2).Draw(t, "gpus")).Free
				w.step(step.FromWorker{Peer: o.To, Msg: contract.Decline{Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: word}, Free: free}})
			},
			"wait": func(t *rapid.T) {
				end := w.now.Add(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
				for wake := w.asked.Wake(); !wake.IsZero() && wake.Before(end); wake = w.asked.Wake() {
					w.now = wake
					w.step()
				}
				w.now = end
				w.step()
			},
		})
	})
	for v := place.Blocked; v <= place.Pauses; v++ {
		if verdicts[v] == 0 {
			t.Errorf("no task was %s in any history", v)
		}
	}
}
