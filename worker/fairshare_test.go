package worker_test

// The use of a host by its users: it is counted once, survives a restart, and orders equal offers.

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// sharing returns a host with so many GPUs that counts use.
func sharing(t tb, n int, w fairshare.Weights) *host {
	cfg := config(n)
	cfg.Shares = w
	h := newHost(t, cfg)
	h.show = func(_ worker.Writes, e worker.Effects) {
		if e.KeepUsage != nil { // as the disk does
			text, err := json.Marshal(e.KeepUsage)
			h.cfg.Usage = resources.Usage{}
			if err == nil {
				err = json.Unmarshal(text, &h.cfg.Usage)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

// of returns an offer for a user, which may wait.
func of(user string, id, number uint64, need job.Resources) contract.Offer {
	m := offer(id, attempt(number, 1), need)
	m.User, m.Wait = user, contract.MaxOfferWait
	return m
}

// used returns the decayed GPU-seconds of a user.
func (h *host) used(user string) float64 {
	sum := 0.0
	for _, e := range h.core.Usage(h.now).Entries {
		if e.User == user {
			sum += e.Used.GPU
		}
	}
	return sum
}

func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.02*max(want, 1) {
		t.Errorf("%s: %.1f GPU-seconds, want %.1f", what, got, want)
	}
}

const life = 24 * time.Hour

func TestUsageSurvivesRestarts(t *testing.T) {
	h := sharing(t, 2, fairshare.Weights{HalfLife: life})
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(2))
	user := h.records[a].User
	h.pass(10 * time.Minute)
	within(t, "ten minutes of two GPUs", h.used(user), 1200)
	// The daemon is down for a quarter of an hour while the task goes on, and the wall clock is set meanwhile.
	for _, set := range []time.Duration{0, -90 * 24 * time.Hour, time.Hour} {
		before := h.used(user)
		h.now.Boot = h.now.Boot.Add(15 * time.Minute)
		h.now.Wall = h.now.Wall.Add(15*time.Minute + set)
		h.boot(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
		got := h.used(user)
		if set == 0 {
			within(t, "after a restart", got, before+1800)
		} else if got < 0.97*before || got > before+2000 {
			t.Errorf("the clock was set by %s: %.0f GPU-seconds before, %.0f after, want at least %v and at most %v", set, before, got, 0.97*before, before+2000)
		}
		h.meet(amy, 1)
		h.pass(3 * time.Minute)
	}
	// A reboot ends the task. Past use stays, and decays by the wall clock.
	before := h.used(user)
	h.cfg.Boot, h.now.Boot, h.now.Wall = "boot-2", leaseclock.BootTime(time.Minute), h.now.Wall.Add(life)
	h.boot()
	within(t, "a day after", h.used(user), before/2)
}

func TestUsageIsCountedOnce(t *testing.T) {
	h := sharing(t, 2, fairshare.Weights{HalfLife: life})
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	user := h.records[a].User
	for range 600 {
		h.pass(time.Second)
	}
	within(t, "in 600 rounds", h.used(user), 600)
	h.round(driver.Event{Attempt: a, Kind: driver.Exited, Exit: job.Exit{State: job.Succeeded}})
	at := h.used(user)
	h.pass(time.Hour)
	within(t, "an hour after the end", h.used(user), at*fairshare.Decay(time.Hour, life))
	if at, timer := h.core.Wake(); timer && at < h.now.Boot.Add(time.Second) {
		t.Error("an idle host sets a timer for every second")
	}
}

// Of two users with equal age and priority, the one who has used less for the weight goes first.
func TestEqualOffersAreOrderedByUse(t *testing.T) {
	for _, c := range []struct {
		weight float64
		first  string
	}{{1, "ben"}, {100, "ada"}} {
		h := sharing(t, 1, fairshare.Weights{HalfLife: life, Users: map[string]float64{"ada": c.weight}})
		h.meet(amy, 1)
		h.says(amy, of("ben", 1, 1, gpus(1)))
		h.startAll(amy)
		h.pass(time.Minute)
		h.end(attempt(1, 1))
		h.says(amy, of("ada", 2, 2, gpus(1)))
		h.startAll(amy)
		h.pass(10 * time.Minute)
		late := of("ben", 4, 4, gpus(1))
		late.Age = 0
		old := of("ada", 3, 3, gpus(1))
		old.Age = time.Hour
		h.says(amy, of("cyd", 5, 5, gpus(1))) // it is alone and has to wait: its turn comes first, whatever was used
		h.pass(time.Second)
		h.says(amy, old)
		h.says(amy, late)
		h.end(attempt(2, 1))
		if m := one[contract.Commit](h, amy); m.Attempt != attempt(5, 1) {
			t.Fatalf("weight %g: %s goes before the one whose turn it is, want %v", c.weight, m.Attempt, attempt(5, 1))
		}
		h.says(amy, contract.Release{Offer: 5})
		want := attempt(4, 1)
		if c.first == "ada" {
			want = attempt(3, 1)
		}
		if m := one[contract.Commit](h, amy); m.Attempt != want {
			t.Errorf("weight %g: %s goes first, want %s of %s", c.weight, m.Attempt, want, c.first)
		}
	}
}

// startAll starts all tasks to which the host has committed.
func (h *host) startAll(p job.Peer) {
	h.t.Helper()
	for _, c := range got[contract.Commit](h, p) {
		m := start(c.Offer, c.Attempt, c.Session, gpus(1))
		m.User = h.records[c.Attempt].User
		h.says(p, m)
		h.round(driver.Event{Attempt: c.Attempt, Kind: driver.Started, PID: 42})
	}
}

// end ends a task.
func (h *host) end(a job.Attempt) {
	h.t.Helper()
	h.round(driver.Event{Attempt: a, Kind: driver.Exited, Exit: job.Exit{State: job.Succeeded}})
}

// The number of accounts that are counted and reported is bounded, however many users there are.
func TestUsageIsBounded(t *testing.T) {
	h := sharing(t, 1, fairshare.Weights{HalfLife: life})
	h.meet(amy, 1)
	const users = 4500
	most := 0
	for i := range users {
		m := of(fmt.Sprintf("user%d", i), uint64(i+1), uint64(i+1), gpus(1))
		h.says(amy, m)
		h.now.Boot = h.now.Boot.Add(time.Duration(1+i%7) * time.Second)
		h.says(amy, contract.Release{Offer: m.ID})
		for _, a := range got[contract.Availability](h, amy) {
			if a.Usage != nil {
				most = max(most, len(a.Usage.Entries))
			}
		}
		if i%50 == 0 {
			h.renew(amy)
		}
	}
	if n := len(h.core.Usage(h.now).Entries); n > 4096 {
		t.Errorf("%d accounts are counted, want at most 4096", n)
	}
	if most == 0 || most > contract.MaxUsage {
		t.Errorf("%d accounts in one message, want 1 to MaxUsage", most)
	}
}

// A user who names another project with each job is counted and reported like one who names none.
func TestInventedProjectsDoNotHideUse(t *testing.T) {
	const projects = 5000
	h := sharing(t, 1, fairshare.Weights{HalfLife: fairshare.MaxHalfLife, Projects: map[string]float64{"vision": 2}})
	h.meet(amy, 1)
	told := 0.0
	use := func(id int, user, project string, d time.Duration) {
		m := of(user, uint64(id), uint64(id), gpus(1))
		m.Project = project
		h.says(amy, m)
		h.now.Boot = h.now.Boot.Add(d)
		h.says(amy, contract.Release{Offer: m.ID})
		if id%50 == 0 {
			h.renew(amy)
		}
		for _, a := range got[contract.Availability](h, amy) {
			if a.Usage == nil {
				continue
			}
			told = 0
			for _, e := range a.Usage.Entries {
				if e.User == "eve" {
					told += e.Used.GPU
				}
			}
		}
	}
	use(1, "cyd", "vision", time.Second)
	for i := range projects {
		use(i+2, "eve", fmt.Sprintf("project%d", i), time.Second)
	}
	h.pass(time.Minute)
	use(projects+2, "ada", "", time.Second)
	within(t, "counted", h.used("eve"), projects)
	within(t, "told", told, projects)
	if n := len(h.core.Usage(h.now).Entries); n > 4096 {
		t.Errorf("%d accounts are counted, want at most 4096", n)
	}
	within(t, "a project with a share of its own", h.used("cyd"), 1)
}

// Use does not order gangs, because then two gangs could wait for each other. Single tasks go between them by use, but
// do not take a place away, however little their users have used.
func TestGangsAreNotOrderedByUse(t *testing.T) {
	for name, c := range map[string]struct {
		offers []string // a user and, for a gang, its Order; the GPU is full until all offers are here
		want   int      // the offer that gets it
	}{
		"gangs by age":                  {offers: []string{"cyd", "ada1", "ben2"}, want: 1},
		"whatever came first":           {offers: []string{"cyd", "ben2", "ada1"}, want: 2},
		"a single task by use":          {offers: []string{"cyd", "ada1", "ben"}, want: 2},
		"a gang by use":                 {offers: []string{"cyd", "ada", "ben1"}, want: 2},
		"behind the first of the gangs": {offers: []string{"cyd", "ada1", "ben2", "ben"}, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := sharing(t, 1, fairshare.Weights{HalfLife: life})
			h.round(worker.Up{Peer: amy, Path: contract.Path{Local: "10.0.0.9", Remote: "10.0.0.1"}})
			h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
			h.answer(amy, 1)
			h.says(amy, of("ada", 90, 90, gpus(1)))
			h.startAll(amy)
			h.pass(10 * time.Minute)
			ids := make([]job.Attempt, len(c.offers))
			for i, o := range c.offers {
				m := of(o[:3], uint64(i+1), uint64(i+1), gpus(1))
				if order := o[3:]; order != "" {
					m.Gang, m.Hold, m.Attempt.Task, m.Order = 2, time.Minute, 1, uint64(order[0]-'0')
					m.Age = time.Hour - time.Duration(m.Order)*time.Second
				}
				ids[i] = m.Attempt
				h.says(amy, m)
				h.pass(time.Second)
			}
			h.says(amy, contract.Release{Offer: 1}) // the offer whose turn it was
			h.pass(time.Second)
			h.end(attempt(90, 1))
			var commits []job.Attempt
			for _, m := range got[contract.Commit](h, amy) {
				commits = append(commits, m.Attempt)
			}
			if len(commits) != 1 || commits[0] != ids[c.want] {
				t.Errorf("%v got the device, want %s", commits, ids[c.want])
			}
		})
	}
}

// A gang that has a place keeps it, although the user of a later single task has used less. Without shares the older
// task goes first.
func TestUseDoesNotTakeThePlaceOfAGang(t *testing.T) {
	for _, halfLife := range []time.Duration{0, life} {
		h := sharing(t, 1, fairshare.Weights{HalfLife: halfLife})
		h.round(worker.Up{Peer: amy, Path: contract.Path{Local: "10.0.0.9", Remote: "10.0.0.1"}})
		h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
		h.answer(amy, 1)
		h.says(amy, of("ada", 90, 90, gpus(1)))
		h.startAll(amy)
		h.pass(10 * time.Minute)
		h.end(attempt(90, 1))
		gang, single := of("ada", 1, 1, gpus(1)), of("ben", 2, 2, gpus(1))
		gang.Gang, gang.Hold, gang.Attempt.Task, gang.Order, gang.Age = 2, time.Minute, 1, 1, time.Hour
		single.Age = 2 * time.Hour
		h.says(amy, gang)
		one[contract.Commit](h, amy)
		h.says(amy, single)
		lost := 0
		for range 6 {
			h.pass(10 * time.Second)
			for _, d := range got[contract.Decline](h, amy) {
				if d.Offer != gang.ID {
					t.Fatalf("declined: %+v, want Offer %v", d, gang.ID)
				}
				lost++
			}
			if lost == 0 {
				h.says(amy, gang)
				h.says(amy, single)
			}
		}
		if want := halfLife == 0; lost > 0 != want {
			t.Errorf("half-life %s: the gang lost %d places, want some only without shares", halfLife, lost)
		}
	}
}

// The start that a host has forecast for the first waiting offer is not delayed for users who have used less in the
// meantime, even if they have the same need.
func TestBookingStaysWhenTheOrderByUseChanges(t *testing.T) {
	h := sharing(t, 2, fairshare.Weights{HalfLife: life})
	s := h.meet(amy, 1)
	m := timed(1, gpus(2), 10*time.Minute)
	m.User = "ada"
	h.says(amy, m)
	h.committed()
	h.begins(m, s)
	for range 15 {
		h.pass(20 * time.Second)
		h.renew(amy)
	}
	h.end(m.Attempt)
	running := timed(2, gpus(1), time.Hour)
	running.User = "ben"
	h.says(amy, running)
	h.committed()
	h.begins(running, s)
	wide := timed(3, gpus(2), time.Hour)
	wide.User = "ada"
	h.says(amy, wide)
	h.pass(time.Second)
	first := h.forecasts()[3].Start
	if first == 0 {
		t.Fatal("no start was forecast")
	}
	begun := h.now.Boot
	same, one, long := timed(4, gpus(2), time.Hour), timed(5, gpus(1), 10*time.Minute), timed(6, gpus(1), 2*time.Hour)
	same.User, one.User, long.User = "cyd", "cyd", "dan"
	h.says(amy, same, one, long)
	if got := h.committed(); len(got) != 1 || got[0] != 5 {
		t.Fatalf("committed %v, want only what ends before the wide one can start", got)
	}
	h.begins(one, s)
	for range 29 {
		h.pass(20 * time.Second)
		h.renew(amy)
		h.says(amy, wide, same, long)
	}
	h.end(one.Attempt)
	if f := h.forecasts()[3]; f.Start > 0 {
		if by := h.now.Boot.Add(f.Start); by > begun.Add(first+time.Second) {
			t.Errorf("it was to start by %v, now by %v, want at most %v", begun.Add(first), by, begun.Add(first+time.Second))
		}
	}
	h.end(running.Attempt)
	if got := h.committed(); len(got) != 1 || got[0] != 3 {
		t.Errorf("committed %v, want the one that had its turn", got)
	}
}
