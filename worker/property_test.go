package worker_test

// Properties that hold for any order of events: the host allocates nothing twice, each offer is answered once, and the
// numbers of events have no gaps.

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

// walk is a host that gets random events, and what the test knows about it.
type walk struct {
	*host
	t *rapid.T

	renewals map[job.Peer]contract.Renew // unanswered
	answered leaseclock.BootTime         // clock of the newest Renew with an answer
	term     uint64
	owner    job.Peer
	nextID   uint64
	jobs     uint64

	open    map[string]contract.Offer // unanswered
	commits []contract.Commit
	offers  map[uint64]contract.Offer
	held    map[string]bool              // offers to members of gangs that have a reservation
	firm    map[job.ID]bool              // jobs of which an offer was sent as firm
	runs    map[job.Attempt]driver.Task  // in the driver: started and not ended
	ends    map[job.Attempt]driver.Event // in the driver: ended and not forgotten
	began   map[job.Attempt]bool
	known   map[job.Attempt]bool   // committed in this life of the host
	dead    map[job.Attempt]bool   // refused for good
	over    map[job.Attempt]bool   // acknowledged to the end
	acked   map[job.Attempt]uint64 // newest event with an acknowledgement
	last    map[job.Attempt]uint64 // newest event since the owner's session opened
}

func newWalk(t *rapid.T) *walk {
	w := &walk{
		host: newHost(t, config(4)), t: t, term: 1, owner: amy,
		renewals: map[job.Peer]contract.Renew{},
		open:     map[string]contract.Offer{}, offers: map[uint64]contract.Offer{},
		held: map[string]bool{}, firm: map[job.ID]bool{}, known: map[job.Attempt]bool{},
		runs: map[job.Attempt]driver.Task{}, ends: map[job.Attempt]driver.Event{}, began: map[job.Attempt]bool{}, dead: map[job.Attempt]bool{},
		last: map[job.Attempt]uint64{}, acked: map[job.Attempt]uint64{}, over: map[job.Attempt]bool{},
	}
	w.connect()
	return w
}

func key(p job.Peer, id uint64) string { return fmt.Sprint(p, "/", id) }

// after checks the effects of a round.
func (w *walk) after() {
	for p, msgs := range w.sent {
		for _, m := range msgs {
			w.heard(p, m)
		}
		delete(w.sent, p)
	}
	for _, a := range w.done.Forget {
		delete(w.ends, a)
	}
	for a, until := range w.done.Extend {
		if until > w.answered.Add(job.DefaultLease) {
			w.t.Fatalf("%s is extended until %v, the last answered Renew has clock %v, want at most %v", a, until, w.answered, w.answered.Add(job.DefaultLease))
		}
	}
	for _, s := range w.done.Stop {
		if _, by, found := strings.Cut(s.Reason, "preempted by job "); found {
			by, _, _ = strings.Cut(by, " ")
			for _, m := range w.offers {
				if string(m.Attempt.Job) == by && m.Gang > 0 && !w.firm[m.Attempt.Job] {
					w.t.Fatalf("%s ends for a gang that is not firm: %s", s.Attempt, s.Reason)
				}
			}
		}
	}
	for _, s := range w.done.Start {
		if w.began[s.Attempt] {
			w.t.Fatalf("%s was started twice", s.Attempt)
		}
		if w.dead[s.Attempt] {
			w.t.Fatalf("%s was started though it was refused for good", s.Attempt)
		}
		if r := w.synced[s.Attempt]; r.Phase != contract.PhaseStarted {
			w.t.Fatalf("%s was started, but after a power cut its record would say %q, want %v", s.Attempt, r.Phase, contract.PhaseStarted)
		}
		if w.now.Boot >= w.answered.Add(worker.SessionLease) || s.Deadline > w.answered.Add(job.DefaultLease) {
			w.t.Fatalf("%s was started at %v until %v, the last answered Renew has clock %v, want less than %v and at most %v", s.Attempt, w.now.Boot, s.Deadline, w.answered, w.answered.Add(worker.SessionLease), w.answered.Add(job.DefaultLease))
		}
		w.began[s.Attempt] = true
		w.runs[s.Attempt] = s
	}
	w.balance()
}

func (w *walk) heard(p job.Peer, m contract.ToScheduler) {
	answer := func(id uint64) {
		if _, open := w.open[key(p, id)]; !open {
			w.t.Fatalf("offer %d of %s was answered twice: %+v", id, p, m)
		}
		delete(w.open, key(p, id))
	}
	switch m := m.(type) {
	case contract.Commit:
		if m.Conditional {
			if o := w.offers[m.Offer]; o.Gang == 0 || !o.Preempt || w.records[m.Attempt].Phase == contract.PhaseReserved {
				w.t.Fatalf("a conditional Commit of an offer that may not preempt, or is reserved: %+v", o)
			}
			return // the answer follows
		}
		answer(m.Offer)
		w.held[key(p, m.Offer)] = w.offers[m.Offer].Gang > 0
		if o := w.offers[m.Offer]; (m.Port != 0) != (o.Gang > 0 && o.Attempt.Task == 0) {
			w.t.Fatalf("port %d in the Commit of %+v, want one for rank 0 of a gang only", m.Port, o)
		}
		if r := w.records[m.Attempt]; r.Phase != contract.PhaseReserved {
			w.t.Fatalf("Commit of %s, but its record says %q, want %v", m.Attempt, r.Phase, contract.PhaseReserved)
		}
		w.commits = append(w.commits, m)
		w.known[m.Attempt] = true
	case contract.Decline:
		if _, open := w.open[key(p, m.Offer)]; open || !w.held[key(p, m.Offer)] {
			answer(m.Offer)
		}
		delete(w.held, key(p, m.Offer)) // the Commit is withdrawn
	case contract.Stale:
		for k, o := range w.open { // a Stale answers all offers of older epochs, and of members who do not own the group
			if o.Epoch.Less(m.Epoch) || m.Owner != p && strings.HasPrefix(k, string(p)) {
				delete(w.open, k)
			}
		}
	case contract.Event:
		if n := w.last[m.Attempt]; m.N > n+1 {
			w.t.Fatalf("%s: event %d after %d, want at most %v", m.Attempt, m.N, n, n+1)
		}
		if r := w.records[m.Attempt]; r.EventN < m.N && !w.unsaved {
			w.t.Fatalf("%s: event %d was sent, but only %d is on disk", m.Attempt, m.N, r.EventN)
		}
		w.last[m.Attempt] = max(w.last[m.Attempt], m.N)
		if m.Refused != "" {
			fromMemory := w.unsaved && w.known[m.Attempt] // nothing can be written, and no Start of another life counts
			if r := w.synced[m.Attempt]; r.Phase != contract.PhaseRefused && !fromMemory {
				w.t.Fatalf("%s was refused, but after a power cut its record would say %q", m.Attempt, r.Phase)
			}
			w.dead[m.Attempt] = true
			if w.began[m.Attempt] && !w.over[m.Attempt] {
				w.t.Fatalf("%s was refused though it was started", m.Attempt)
			}
		}
		if (m.Exit != nil) != (m.State.Ended() && m.Refused == "") {
			w.t.Fatalf("event = %+v, want an exit exactly at the end", m)
		}
	case contract.Renew:
		w.renewals[p] = m
	case contract.Hello, contract.Availability:
	}
}

// balance compares what is free with what is held.
func (w *walk) balance() {
	cpus, memory, tasks, alone := 0, job.Size(0), 0, 0
	milli, held := map[string]int{}, map[string]job.Size{}
	for _, r := range w.core.Attempts() {
		if r.Phase != contract.PhaseReserved && r.Phase != contract.PhaseStarted {
			continue
		}
		cpus += r.Need.CPUs
		memory += r.Need.Memory
		if tasks++; r.Need.Exclusive {
			alone++
		}
		for _, d := range r.Devices {
			milli[d] += gpu.Milli(r.Need)
			held[d] += gpu.Memory(r.Need, 80e9)
		}
	}
	ports := map[int]bool{}
	for _, r := range w.core.Attempts() {
		if r.Phase == contract.PhaseStarted && r.Gang != nil && r.Element.Rank == 0 {
			if ports[r.Gang.Port] {
				w.t.Fatalf("two gangs have port %d", r.Gang.Port)
			}
			ports[r.Gang.Port] = true
		}
	}
	v := w.core.View()
	p := w.cfg.Profile
	if alone > 0 && tasks > 1 || v.Free.Tasks != tasks || v.Free.Exclusive != (alone > 0) {
		w.t.Fatalf("%d of %d tasks want the host for themselves, %+v free", alone, tasks, v.Free)
	}
	if alone > 0 {
		if v.Free.CPUs > 0 || v.Free.Memory > 0 || len(v.Free.GPUs) > 0 || cpus != p.CPUs || len(milli) != len(p.GPUs) {
			w.t.Fatalf("an exclusive task holds only %d CPUs and %d GPUs; %+v free", cpus, len(milli), v.Free)
		}
		return
	}
	if cpus > p.CPUs || memory > p.Memory || v.Free.CPUs != p.CPUs-cpus || v.Free.Memory != p.Memory-memory {
		w.t.Fatalf("%d CPUs and %s are held, %+v free, which is not all together", cpus, memory, v.Free)
	}
	for d, m := range milli {
		if m > gpu.Whole || held[d] > 80e9 {
			w.t.Fatalf("of %s %d thousandths and %s are held, want at most %v and at most 80e9", d, m, held[d], gpu.Whole)
		}
	}
	for _, f := range v.Free.GPUs {
		if f.Milli+milli[f.UUID] != gpu.Whole {
			w.t.Fatalf("%s: %d free and %d held, which is not all together", f.UUID, f.Milli, milli[f.UUID])
		}
	}
	// The tasks in the driver do not use more than the host has.
	used := map[string]int{}
	for a, task := range w.runs {
		for _, d := range task.Devices {
			used[d] += gpu.Milli(task.Spec.Resources)
			if used[d] > gpu.Whole {
				w.t.Fatalf("too many tasks use %s, among them %s", d, a)
			}
		}
	}
}

func (w *walk) tell(events ...worker.Event) {
	w.round(events...)
	w.after()
}

// ended lets the driver report an end. The driver keeps it until Forget.
func (w *walk) ended(e driver.Event) {
	delete(w.runs, e.Attempt)
	w.ends[e.Attempt] = e
	w.tell(e)
}

func (w *walk) connect() {
	maps.DeleteFunc(w.open, func(k string, _ contract.Offer) bool { return strings.HasPrefix(k, string(w.owner)) })
	w.last = maps.Clone(w.acked)
	w.tell(
		worker.Up{Peer: w.owner},
		worker.Message{From: w.owner, Msg: contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(w.term)}}}},
	)
}

// policy delivers the missing answers of the host's policy.
func (w *walk) policy() {
	var answers []worker.Event
	for _, a := range w.asked {
		answers = append(answers, worker.Admitted{Attempt: a.Attempt, Refused: w.refuses})
	}
	w.asked = nil
	w.tell(answers...)
}

func (w *walk) pick(name string, n int) int { return rapid.IntRange(0, n-1).Draw(w.t, name) }

func (w *walk) need() job.Resources {
	return rapid.SampledFrom([]job.Resources{
		{CPUs: 1},
		{CPUs: 5, Memory: 40 << 30},
		{CPUs: 1, GPUs: 1},
		{CPUs: 2, GPUs: 3},
		{GPUs: 4},
		{CPUs: 1, GPUShare: 0.3},
		{CPUs: 1, GPUShare: 0.6, GPUMemory: 60e9},
		{CPUs: 20},
		{Memory: 1 << 30},
		{CPUs: 1, Exclusive: true},
		{CPUs: 1, GPUs: 2, Memory: 1 << 30, Exclusive: true},
	}).Draw(w.t, "need")
}

func (w *walk) newOffer() contract.Offer {
	w.nextID++
	w.jobs++
	m := offer(w.nextID, attempt(w.jobs, 1), w.need())
	m.Epoch = epoch(w.term)
	m.Priority = rapid.SampledFrom([]int{10, 50, 90}).Draw(w.t, "priority")
	m.Wait = rapid.SampledFrom([]time.Duration{0, 3 * time.Second, time.Hour}).Draw(w.t, "wait")
	m.Preempt = w.pick("preempt", 3) == 0
	if w.pick("gang", 2) == 0 {
		m.Gang, m.Attempt.Task, m.Order = 3, w.pick("rank", 3), uint64(w.pick("order", 5))
		m.Hold = rapid.SampledFrom([]time.Duration{0, 5 * time.Second, time.Minute, time.Hour}).Draw(w.t, "hold")
	}
	w.open[key(w.owner, m.ID)] = m
	w.offers[m.ID] = m
	return m
}

func (w *walk) startOf(c contract.Commit) contract.Start {
	o := w.offers[c.Offer]
	m := startOf(o, c)
	m.Epoch = epoch(w.term)
	m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible = o.Priority, w.pick("preemptible", 2) == 0 })
	if o.Gang == 0 {
		m.Element.Rank, m.Gang = 0, nil
	}
	return m
}

// started records a sent Start.
func (w *walk) started(m contract.Start) contract.Start {
	delete(w.held, key(w.owner, m.Offer))
	return m
}

// actions returns everything that may happen.
func (w *walk) actions() map[string]func(*rapid.T) {
	from := func(m contract.ToWorker) worker.Event { return worker.Message{From: w.owner, Msg: m} }
	someCommit := func() (contract.Commit, bool) {
		if len(w.commits) == 0 {
			return contract.Commit{}, false
		}
		return w.commits[len(w.commits)-1-w.pick("commit", min(8, len(w.commits)))], true
	}
	someRun := func() (job.Attempt, bool) {
		for _, r := range w.core.Attempts() {
			if _, ok := w.runs[r.Attempt]; ok && w.pick("this", 3) == 0 {
				return r.Attempt, true
			}
		}
		return job.Attempt{}, false
	}
	return map[string]func(*rapid.T){
		"offers": func(*rapid.T) {
			var events []worker.Event
			for range 1 + w.pick("offers", 4) {
				events = append(events, from(w.newOffer()))
			}
			w.tell(events...)
		},
		"renew an offer": func(*rapid.T) {
			id := w.nextID - uint64(w.pick("offer", int(min(6, w.nextID)+1)))
			m, open := w.open[key(w.owner, id)]
			if w.held[key(w.owner, id)] {
				m, open = w.offers[id], true
				w.open[key(w.owner, id)] = m // it is committed again
			}
			if !open {
				return
			}
			m.Epoch = epoch(w.term)
			if m.Gang > 0 && w.pick("firm", 3) == 0 {
				m.Firm, w.firm[m.Attempt.Job] = true, true
			}
			w.tell(from(m))
		},
		"release": func(*rapid.T) {
			if w.nextID == 0 {
				return
			}
			id := w.nextID - uint64(w.pick("offer", int(min(6, w.nextID))))
			delete(w.open, key(w.owner, id))
			delete(w.held, key(w.owner, id))
			w.tell(from(contract.Release{Offer: id}))
		},
		"start": func(*rapid.T) {
			if c, ok := someCommit(); ok {
				w.tell(from(w.started(w.startOf(c))))
			}
		},
		"start and cancel": func(*rapid.T) {
			if c, ok := someCommit(); ok {
				w.tell(from(w.started(w.startOf(c))), from(contract.Cancel{Attempt: c.Attempt, Group: group, Epoch: epoch(w.term)}))
			}
		},
		"query": func(*rapid.T) {
			if c, ok := someCommit(); ok {
				w.tell(from(contract.Query{Attempt: c.Attempt, Group: group, Epoch: epoch(w.term), Store: store}))
			}
		},
		"ack": func(*rapid.T) {
			for _, r := range w.core.Attempts() {
				if n := w.last[r.Attempt]; n > 0 {
					w.acked[r.Attempt] = n
					w.over[r.Attempt] = w.over[r.Attempt] || r.Phase == contract.PhaseDone && n == r.EventN
					w.tell(from(contract.Ack{Attempt: r.Attempt, N: n}))
					return
				}
			}
		},
		"renewed": func(*rapid.T) {
			if r, ok := w.renewals[w.owner]; ok {
				w.answered = max(w.answered, leaseclock.BootTime(r.Clock))
				w.tell(from(answerTo(r, w.term, w.pick("keep", 4) > 0)))
			}
		},
		"runs": func(*rapid.T) {
			if a, ok := someRun(); ok {
				w.tell(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
			}
		},
		"ends": func(*rapid.T) {
			if a, ok := someRun(); ok {
				w.ended(exited(a, w.pick("code", 2)))
			}
		},
		"fails": func(*rapid.T) {
			if a, ok := someRun(); ok {
				w.ended(driver.Event{Attempt: a, Kind: driver.Failed, Exit: job.Exit{State: job.Failed, Code: 127}})
			}
		},
		"time": func(*rapid.T) {
			w.jump(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 11 * time.Second, 400 * time.Second}).Draw(w.t, "time"))
			w.tell()
		},
		"policy": func(*rapid.T) {
			w.mute = w.pick("mute", 2) == 0
			w.refuses = rapid.SampledFrom([]string{"", "", "not today"}).Draw(w.t, "refuses")
			if !w.mute {
				w.policy()
			}
		},
		"disk": func(*rapid.T) {
			w.failing = !w.failing
			w.tell()
		},
		"session breaks": func(*rapid.T) {
			w.tell(worker.Down{Peer: w.owner})
			w.connect()
		},
		"takeover": func(*rapid.T) {
			w.term++
			if w.owner == amy {
				w.owner = bob
			} else {
				w.owner = amy
			}
			worker.Bind(w.core, group, w.owner)
			w.connect()
		},
		"epoch forgotten": func(*rapid.T) { w.tell(worker.ForgetClaim{Group: group}) },
		"elected again": func(*rapid.T) {
			w.term++
			w.connect()
		},
		"rival": func(*rapid.T) { // another member claims the group, and is ignored
			rival := job.Peer("rival")
			w.tell(worker.Up{Peer: rival})
			e := epoch(w.term + uint64(w.pick("ahead", 3)))
			n := len(w.records)
			for _, m := range []contract.ToWorker{
				contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: e}}},
				contract.Cancel{Attempt: attempt(uint64(1+w.pick("job", 4)), 1), Group: group, Epoch: e},
				contract.Query{Attempt: attempt(9999, 1), Group: group, Epoch: e, Store: store},
			} {
				done := w.says(rival, m)
				if len(done.Stop)+len(done.Signal)+len(done.Start) > 0 || len(w.records) != n {
					w.t.Fatalf("%T of a rival was obeyed: %+v", m, done)
				}
			}
			w.tell(worker.Down{Peer: rival})
		},
		"restart": func(*rapid.T) {
			clear(w.known)
			if w.pick("power", 2) == 0 {
				w.records = maps.Clone(w.synced)
			}
			var found []driver.Event
			for _, e := range w.ends {
				found = append(found, e)
			}
			for a := range w.runs {
				found = append(found, driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
			}
			w.cfg.Seed++
			clear(w.open)
			clear(w.held)
			clear(w.renewals)
			w.asked = nil
			w.boot(found...)
			for _, s := range w.done.Stop {
				delete(w.runs, s.Attempt)
			}
			w.after()
			if w.owner != amy { // the owner proves nothing, and the disk may have failed
				worker.Bind(w.core, group, w.owner)
			}
			w.connect()
		},
	}
}

func TestNothingIsAllocatedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalk(t)
		t.Repeat(w.actions())
		// In the end each offer is answered, and each end is reported.
		w.failing, w.mute = false, false
		w.policy()
		for range 200 {
			w.jump(time.Second)
			w.tell()
		}
		if len(w.open) > 0 {
			t.Fatalf("not answered: %+v, want none", w.open)
		}
		for _, r := range w.core.Attempts() {
			if r.Phase != contract.PhaseReserved && w.last[r.Attempt] < r.EventN {
				t.Fatalf("%s: told events up to %d, want up to %d: %+v", r.Attempt, w.last[r.Attempt], r.EventN, r)
			}
		}
		for a := range w.runs {
			if w.records[a].Phase != contract.PhaseStarted {
				t.Fatalf("%s runs, but its record says %q, want %v", a, w.records[a].Phase, contract.PhaseStarted)
			}
		}
	})
}
