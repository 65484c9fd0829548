//go:build e2e

package e2e

// Attacks of a member that may only submit tasks, and command those of its own.

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

var schedulersAttacks = []attack{
	{name: "a scheduler offers tasks", try: (*field).offers},
	{name: "a scheduler offers tasks of priority 100", try: (*field).highOffers},
	{name: "a scheduler releases what it never had", try: (*field).releases},
	{name: "a scheduler asks for attempts", try: (*field).queries},
	{name: "a scheduler starts and ends tasks with made-up epochs", try: (*field).starts},
	{name: "a scheduler owns 1,024 groups", try: (*field).owns},
}

// group founds a group of jobs of the hostile scheduler.
func group(p *rogue.Peer) (*wirepb.Owns, uint64) {
	founding, g := job.Found(p.ID())
	return &wirepb.Owns{Groups: []*wirepb.GroupEpoch{{Group: uint64(g), Epoch: epochs, Founding: founding[:]}}}, uint64(g)
}

var epochs = &wirepb.EpochRef{Generation: 1, Term: 1}

// offersOf are many offers of the scheduler's own tasks.
func offersOf(p *rogue.Peer, n int, as func(*wirepb.Offer)) []proto.Message {
	own, g := group(p)
	all := []proto.Message{own}
	for i := range n {
		o := &wirepb.Offer{
			Id: uint64(i + 1), Attempt: &wirepb.AttemptRef{Job: string(job.NewID(job.Group(g), uint64(i))), N: 1}, Group: g, Epoch: epochs,
			Need: &wirepb.Resources{Cpus: 1, Memory: 1 << 20}, Priority: 50, User: "nobody", WaitNs: int64(time.Minute),
		}
		as(o)
		all = append(all, o)
	}
	return all
}

func (f *field) offers() {
	p := f.joins("scheduler")
	f.send(p, offersOf(p, 1000, func(*wirepb.Offer) {})...)
}

// highOffers are offers for the whole host, and may end preemptible tasks of others.
func (f *field) highOffers() {
	p := f.joins("scheduler")
	f.send(p, offersOf(p, 64, func(o *wirepb.Offer) {
		o.Priority, o.Preempt, o.Need.Cpus = 100, true, 8
	})...)
}

func (f *field) releases() {
	p := f.joins("scheduler")
	var all []proto.Message
	for i := range uint64(1000) {
		all = append(all, &wirepb.Release{Offer: i})
	}
	f.send(p, all...)
}

func (f *field) queries() {
	p := f.joins("scheduler")
	own, g := group(p)
	all := []proto.Message{own}
	for i := range uint64(500) {
		all = append(all, &wirepb.Query{Attempt: &wirepb.AttemptRef{Job: string(job.NewID(job.Group(g), i)), N: 1}, Group: g, Epoch: epochs, Store: "x"})
	}
	for _, a := range f.attempts() {
		all = append(all, &wirepb.Query{Attempt: &wirepb.AttemptRef{Job: a.GetJob(), N: 2}, Group: uint64(job.ID(a.GetJob()).Group()), Epoch: epochs})
	}
	f.send(p, all...)
}

func (f *field) starts() {
	p := f.joins("scheduler")
	own, _ := group(p)
	all := []proto.Message{own}
	for _, a := range f.attempts() {
		g := uint64(job.ID(a.GetJob()).Group())
		for _, e := range []*wirepb.EpochRef{{Generation: 1, Term: 2}, {Generation: 1 << 60, Term: 1 << 60}} {
			all = append(all,
				&wirepb.Owns{Groups: []*wirepb.GroupEpoch{{Group: g, Epoch: e}}},
				&wirepb.Signal{Attempt: a, Group: g, Epoch: e, Number: 15},
				&wirepb.Cancel{Attempt: a, Group: g, Epoch: e, GraceNs: 1, Reason: "made up"},
				&wirepb.Ack{Attempt: a, Group: g, Epoch: e, N: 99},
				&wirepb.Renewed{Group: g, Epoch: e, Clock: 1, Session: 1, Verdicts: []*wirepb.Verdict{{Attempt: a}}},
			)
		}
	}
	for _, a := range f.attempts() { // these may end a session
		all = append(all, &wirepb.Start{Offer: 1, Attempt: a, Group: uint64(job.ID(a.GetJob()).Group()), Epoch: epochs, Session: 1, User: "nobody", Spec: []byte(`{"command":["false"]}`)})
	}
	f.send(p, all...)
}

func (f *field) owns() {
	m := &wirepb.Owns{}
	for i := range uint64(1024) {
		m.Groups = append(m.Groups, &wirepb.GroupEpoch{Group: i + 1, Epoch: epochs})
	}
	f.send(f.joins("scheduler"), m)
}
