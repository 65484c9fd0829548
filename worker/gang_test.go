package worker_test

// Gangs: reservations that last, what may revoke them, conditional Commits, and ports.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/resources"
)

// member returns an offer to a member of a gang of 3. Gangs are ordered by their numbers.
func member(number uint64, rank int, need job.Resources) contract.Offer {
	m := offer(number*10+uint64(rank), attempt(number, 1), need)
	m.Attempt.Task = rank
	m.Gang, m.Order, m.Hold, m.Wait, m.Age = 3, number, time.Minute, time.Minute, time.Hour-time.Duration(number)*time.Second
	return m
}

// startOf returns the Start of a member after its Commit.
func startOf(m contract.Offer, c contract.Commit) contract.Start {
	out := start(m.ID, m.Attempt, c.Session, m.Need)
	out.Element.Rank = m.Attempt.Task % 3
	out.Gang = &contract.Gang{Port: 20001, Members: []contract.Member{
		{Node: "n0", Name: "n0", Address: "10.0.0.1"}, {Node: "n1", Name: "n1", Address: "10.0.0.2"}, {Node: "n2", Name: "n2", Address: "10.0.0.3"},
	}}
	out.Gang.Members[out.Element.Rank] = contract.Member{Node: "me", Name: "me", Address: c.Address}
	if c.Port != 0 {
		out.Gang.Port = c.Port
	}
	return out
}

func newGangHost(t *testing.T, gpus int) *host {
	h := newHost(t, config(gpus))
	h.round(worker.Up{Peer: amy, Path: contract.Path{Local: "10.0.0.9", Remote: "10.0.0.1"}})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
	h.answer(amy, 1)
	return h
}

// A member's reservation lasts as long as its offer says, and as long again with each repeated offer.
func TestReservationOfAMemberLastsAsItsOfferSays(t *testing.T) {
	h := newGangHost(t, 1)
	m := member(1, 1, gpus(1))
	h.says(amy, m)
	if c := one[contract.Commit](h, amy); c.Address != "10.0.0.9" || c.Port != 0 || c.Conditional || len(c.Devices) != 1 {
		t.Fatalf("commit %+v, want the address, one device and no port or condition", c)
	}
	for range 5 {
		h.pass(50 * time.Second)
		h.says(amy, m)
		one[contract.Commit](h, amy)
	}
	if ds := got[contract.Decline](h, amy); len(ds) > 0 {
		t.Fatalf("declined: %+v, want none", ds)
	}
	h.pass(61 * time.Second)
	if d := one[contract.Decline](h, amy); d.Offer != m.ID || len(h.core.Attempts()) > 0 {
		t.Fatalf("decline %+v, attempts %+v, want Offer %v and none", d, h.core.Attempts(), m.ID)
	}
	h.answer(amy, 1)
	h.says(amy, startOf(m, contract.Commit{Session: 1}))
	if e := one[contract.Event](h, amy); e.Refused == "" {
		t.Errorf("a Start after the end of the reservation: %+v, want it refused", e)
	}
}

// However often it is repeated, an offer holds its place for at most half an hour. No single offer can hold longer than
// two minutes.
func TestReservationOfAGangIsBoundedInTime(t *testing.T) {
	h := newGangHost(t, 1)
	m := member(1, 1, gpus(1))
	m.Hold = 24 * time.Hour
	h.says(amy, m)
	h.pass(2*time.Minute - time.Second)
	if ds := got[contract.Decline](h, amy); len(ds) > 0 {
		t.Fatalf("declined: %+v, want none", ds)
	}
	h.says(amy, m)
	h.pass(2*time.Minute + time.Second)
	one[contract.Decline](h, amy)

	m.ID++
	h.says(amy, m)
	held := time.Duration(0)
	for ; held < time.Hour && len(got[contract.Decline](h, amy)) == 0; held += 20 * time.Second {
		h.says(amy, m)
		h.pass(20 * time.Second)
	}
	if held < 29*time.Minute || held > 31*time.Minute {
		t.Errorf("held for %s, want at least %v and at most %v", held, 29*time.Minute, 31*time.Minute)
	}
}

// One scheduler cannot hold more than its share of places, even for members without needs.
func TestReservationsOfOneSchedulersGangsAreBounded(t *testing.T) {
	h := newGangHost(t, 0)
	for i := range uint64(200) {
		h.says(amy, member(i+1, 1, job.Resources{}))
	}
	if n := len(got[contract.Commit](h, amy)); n != contract.MaxOffers {
		t.Errorf("%d holds, want %v", n, contract.MaxOffers)
	}
	if n := len(got[contract.Decline](h, amy)); n != 200-contract.MaxOffers {
		t.Errorf("%d declined, want %v", n, 200-contract.MaxOffers)
	}
	for i := range uint64(contract.MaxOffers) {
		h.says(amy, contract.Release{Offer: (i+1)*10 + 1})
	}
	h.says(amy, member(300, 1, job.Resources{}))
	one[contract.Commit](h, amy)
}

// A gang that ranks first revokes as few reservations of later gangs as it needs, and only if it then fits.
func TestEarlierGangRevokesLaterGangs(t *testing.T) {
	for name, c := range map[string]struct {
		held   []uint64 // gangs that hold one of 3 GPUs each
		single bool     // the first one is a single task
		by     uint64
		need   int
		want   []uint64
	}{
		"nothing from an earlier gang": {held: []uint64{1, 2, 3}, by: 4, need: 1},
		"from the last gang":           {held: []uint64{3, 2, 5}, by: 1, need: 1, want: []uint64{5}},
		"from two":                     {held: []uint64{3, 2, 5}, by: 1, need: 2, want: []uint64{3, 5}},
		"all or nothing":               {held: []uint64{1, 4, 5}, by: 2, need: 3},
		"with what is free":            {held: []uint64{4, 5}, by: 2, need: 2, want: []uint64{5}},
		"no single task":               {held: []uint64{5, 6, 7}, single: true, by: 1, need: 3},
		"no member of its own gang":    {held: []uint64{1, 2, 3}, by: 1, need: 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGangHost(t, 3)
			for i, g := range c.held {
				m := member(g, 1, gpus(1))
				if i == 0 && c.single {
					m.Gang, m.Order = 0, 0
				}
				h.says(amy, m)
				one[contract.Commit](h, amy)
			}
			h.says(amy, member(c.by, 2, gpus(c.need)))
			var revoked []uint64
			for _, d := range got[contract.Decline](h, amy) {
				revoked = append(revoked, d.Offer/10)
			}
			slices.Sort(revoked)
			committed := len(got[contract.Commit](h, amy)) > 0
			if !slices.Equal(revoked, c.want) || committed != (len(c.want) > 0) {
				t.Errorf("revoked %v, want %v; committed %v", revoked, c.want, committed)
			}
		})
	}
}

// A scheduler that loses its session forgets the places of its gangs, and offers the same attempts again. So the host
// frees these places at once, but not those that were started.
func TestLostSessionFreesReservationsOfGangs(t *testing.T) {
	h := newGangHost(t, 2)
	m, started := member(1, 1, gpus(1)), member(2, 1, gpus(1))
	h.says(amy, m, started)
	for _, c := range got[contract.Commit](h, amy) {
		if c.Offer == started.ID {
			h.says(amy, startOf(started, c))
		}
	}
	h.round(worker.Down{Peer: amy}, worker.Up{Peer: amy, Path: contract.Path{Local: "10.0.0.9", Remote: "10.0.0.1"}})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
	h.answer(amy, 1)
	again, other := m, started
	again.ID, other.ID, other.Wait = 91, 92, 0
	h.says(amy, again, other)
	if c := one[contract.Commit](h, amy); c.Offer != again.ID {
		t.Errorf("commit %+v, want Offer %v", c, again.ID)
	}
	if d := one[contract.Decline](h, amy); d.Offer != other.ID {
		t.Errorf("decline %+v, want Offer %v", d, other.ID)
	}
}

// Two gangs that were submitted at nearly the same time have the same order at all hosts, however long their offers
// take.
func TestGangsSubmittedTogetherHaveOneOrder(t *testing.T) {
	for k, late := range []time.Duration{-50 * time.Millisecond, 0, 50 * time.Millisecond, -50 * time.Millisecond, 0, 50 * time.Millisecond} {
		same := k >= 3 // they were submitted at the same moment
		for _, held := range []uint64{1, 2} {
			h := newGangHost(t, 1)
			first, second := member(held, 1, gpus(1)), member(3-held, 1, gpus(1))
			first.Age, second.Age = time.Minute, time.Minute+late
			if same {
				second.Order = first.Order
			}
			h.says(amy, first)
			one[contract.Commit](h, amy)
			h.says(amy, second)
			winner := held
			for _, c := range got[contract.Commit](h, amy) {
				winner = c.Offer / 10
			}
			if winner != 1 {
				t.Errorf("gang %d came first, the other's offer %v later, submitted in one moment: %t: gang %d holds the device, want 1", held, late, same, winner)
			}
		}
	}
}

// A single task that ranks first lets a gang gather for ten seconds, and then takes its place. One that ranks later
// never does.
func TestEarlierSingleTaskRevokesAGang(t *testing.T) {
	h := newGangHost(t, 1)
	gang := member(5, 1, gpus(1))
	h.says(amy, gang)
	one[contract.Commit](h, amy)
	later, first := offer(1, attempt(100, 1), gpus(1)), offer(2, attempt(101, 1), gpus(1))
	later.Wait, first.Wait, first.Age = time.Minute, time.Minute, 2*time.Hour
	h.says(amy, later, first)
	h.pass(9 * time.Second)
	h.says(amy, gang)
	if ds := got[contract.Decline](h, amy); len(ds) > 0 {
		t.Fatalf("revoked at once: %+v, want none", ds)
	}
	one[contract.Commit](h, amy)
	h.pass(2 * time.Second)
	if d := one[contract.Decline](h, amy); d.Offer != gang.ID || !strings.Contains(d.Reason.Detail, "goes first") {
		t.Fatalf(`decline %+v, want Offer %v and Reason.Detail "goes first" in it`, d, gang.ID)
	}
	if c := one[contract.Commit](h, amy); c.Offer != first.ID {
		t.Fatalf("commit %+v, want Offer %v", c, first.ID)
	}
	h.says(amy, contract.Release{Offer: first.ID}, contract.Release{Offer: later.ID})
	h.says(amy, gang)
	one[contract.Commit](h, amy)
	h.says(amy, later)
	h.pass(30 * time.Second)
	if ds := got[contract.Decline](h, amy); len(ds) > 0 {
		t.Errorf("revoked for a later task: %+v, want none", ds)
	}
}

// A started member is never revoked, and neither is one whose Start waits for the host's policy.
func TestStartedMemberIsNotRevoked(t *testing.T) {
	for _, mute := range []bool{false, true} {
		h := newGangHost(t, 1)
		h.mute = mute
		m := member(5, 1, gpus(1))
		h.says(amy, m)
		h.says(amy, startOf(m, one[contract.Commit](h, amy)))
		h.says(amy, member(1, 2, gpus(1)))
		if len(got[contract.Commit](h, amy)) > 0 || len(got[contract.Decline](h, amy)) > 0 {
			t.Errorf("mute %v: the started member was revoked", mute)
		}
	}
}

// The quota of a user does not make two gangs of that user wait for each other.
func TestQuotaDoesNotBlockTwoGangsOfAUser(t *testing.T) {
	h := newGangHost(t, 4)
	limits, err := resources.ParseLimits(map[string]string{"per_user.gpus": "1"})
	if err != nil {
		t.Fatal(err)
	}
	h.round(worker.LimitsChanged{Limits: limits})
	young := member(5, 1, gpus(1))
	h.says(amy, young)
	one[contract.Commit](h, amy)
	h.says(amy, member(1, 2, gpus(1)))
	if c := one[contract.Commit](h, amy); c.Attempt.Task != 2 {
		t.Errorf("commit %+v, want Attempt.Task 2", c)
	}
	if d := one[contract.Decline](h, amy); d.Offer != young.ID {
		t.Errorf("decline %+v, want Offer %v", d, young.ID)
	}
	h.says(amy, member(7, 2, gpus(1)))
	if d := one[contract.Decline](h, amy); d.Reason.Word != job.ReasonQuota {
		t.Errorf("decline %+v, want Reason.Word %v", d, job.ReasonQuota)
	}
}

// Rank 0 gets a port that no program and no other gang uses, for as long as the gang runs and even after a restart.
func TestRank0GetsAPortOfItsOwn(t *testing.T) {
	cfg := config(0)
	cfg.FirstPort, cfg.LastPort = 20000, 20003
	h := newHost(t, cfg)
	h.meet(amy, 1)
	h.busy = map[int]bool{20002: true}
	var seen []int
	commit := func(number uint64) (contract.Offer, contract.Commit) {
		m := member(number, 0, cpu)
		h.says(amy, m)
		c := one[contract.Commit](h, amy)
		if slices.Contains(seen, c.Port) || h.busy[c.Port] || c.Port < 20000 || c.Port > 20003 {
			t.Fatalf("port %d, after %v, want a free one from 20000 to 20003", c.Port, seen)
		}
		seen = append(seen, c.Port)
		return m, c
	}
	run, c := commit(1)
	h.says(amy, startOf(run, c))
	h.round(driver.Event{Attempt: run.Attempt, Kind: driver.Started, PID: 4})
	commit(2)
	released, _ := commit(3)
	h.says(amy, member(4, 0, cpu))
	if d := one[contract.Decline](h, amy); !strings.Contains(d.Reason.Detail, "no free port") {
		t.Fatalf(`decline %+v, want Reason.Detail "no free port" in it`, d)
	}
	h.says(amy, contract.Release{Offer: released.ID})
	seen = seen[:2]
	commit(5)

	h.boot(driver.Event{Attempt: run.Attempt, Kind: driver.Started, PID: 4})
	h.meet(amy, 1)
	seen = seen[:1]
	commit(6)
	commit(7)
	h.says(amy, member(8, 0, cpu))
	one[contract.Decline](h, amy)
	h.round(exited(run.Attempt, 0))
	seen = seen[1:]
	commit(9)
}

// A Start that does not match its offer is refused.
func TestStartThatDoesNotFitTheOfferIsRefused(t *testing.T) {
	for name, change := range map[string]func(*contract.Start){
		"no gang":       func(m *contract.Start) { m.Gang = nil },
		"another size":  func(m *contract.Start) { m.Gang.Members = m.Gang.Members[:2] },
		"another rank":  func(m *contract.Start) { m.Element.Rank = 1 },
		"another host":  func(m *contract.Start) { m.Gang.Members[0].Node = "n9" },
		"another port":  func(m *contract.Start) { m.Gang.Port++ },
		"the right one": func(*contract.Start) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGangHost(t, 0)
			m := member(1, 0, cpu)
			h.says(amy, m)
			s := startOf(m, one[contract.Commit](h, amy))
			change(&s)
			e := h.says(amy, s)
			if refused := one[contract.Event](h, amy).Refused; (refused == "") != (name == "the right one") || (len(e.Start) == 1) != (refused == "") {
				t.Errorf("refused %q, started %d, want only the matching Start to start", refused, len(e.Start))
			}
			if s.Gang != nil && len(e.Start) == 1 && h.records[m.Attempt].Gang == nil {
				t.Error("the ledger has no gang for the attempt")
			}
		})
	}
	h := newGangHost(t, 0)
	m := offer(1, attempt(1, 1), cpu)
	h.says(amy, m)
	s := start(1, m.Attempt, one[contract.Commit](h, amy).Session, cpu)
	s.Gang = &contract.Gang{Members: []contract.Member{{Node: "me"}, {Node: "n1"}}, Port: 1}
	h.says(amy, s)
	if e := one[contract.Event](h, amy); e.Refused == "" {
		t.Error("a single task was started as a gang")
	}
}

// A drained host releases the places of gangs when their offers are repeated.
func TestDrainedHostReleasesPlacesOfGangs(t *testing.T) {
	h := newGangHost(t, 0)
	m := member(1, 0, cpu)
	h.says(amy, m)
	one[contract.Commit](h, amy)
	h.round(worker.Drain{On: true, Reason: "repair"})
	h.says(amy, m)
	if d := one[contract.Decline](h, amy); !strings.Contains(d.Reason.Detail, "repair") || len(h.core.Attempts()) > 0 {
		t.Errorf("decline %+v, want the reason of the drain, and no attempts", d)
	}
}

// Hosts decide alone. They let gangs of several schedulers through in one order, whatever the order of the offers, so
// that no two gangs wait for each other. Each gang needs all hosts.
func TestGangsDoNotWaitForEachOther(t *testing.T) {
	const n = 7
	for seed := range 20 {
		hosts := []*host{newGangHost(t, 1), newGangHost(t, 1), newGangHost(t, 1)}
		for rank, h := range hosts {
			for i := range n {
				g := uint64((i*(seed%6+1)+rank*2+seed)%n) + 1
				m := member(g, rank, gpus(1))
				m.Age = time.Minute + time.Duration((i*7+rank*3+seed)%5)*10*time.Millisecond
				h.says(amy, m)
			}
		}
		for range 3 { // revoked gangs are offered again
			for rank, h := range hosts {
				for _, d := range got[contract.Decline](h, amy) {
					m := member(d.Offer/10, rank, gpus(1))
					h.says(amy, m)
				}
			}
		}
		var holds []string
		for _, h := range hosts {
			for _, r := range h.core.Attempts() {
				holds = append(holds, fmt.Sprint(r.Attempt.Job == attempt(1, 1).Job))
			}
		}
		if !slices.Equal(holds, []string{"true", "true", "true"}) {
			t.Fatalf("seed %d: the first gang holds %v, want %v", seed, holds, []string{"true", "true", "true"})
		}
	}
}
