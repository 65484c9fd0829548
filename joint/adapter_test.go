package joint

// The adapter: every place where the shape of the two cores' events and effects
// matters. When a core changes its words, this file changes.

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/worker"
)

func newWorkerCore(cfg worker.Config) (*worker.Core, error) { return worker.NewCore(cfg) }

// carry does what a round of the worker's core has decided, in the order of its
// loop. Whatever the core is told of it comes with a later round.
func (h *host) carry(fx worker.Effects) {
	for _, t := range fx.Start {
		h.startProc(t)
	}
	for _, s := range fx.Stop {
		h.stopProc(s.Attempt, s.Grace, s.Reason)
	}
	for a, until := range fx.Extend {
		if p := h.procs[a]; p != nil && !p.hold && h.clock.read(h.w.now) < p.deadline {
			p.deadline = max(p.deadline, until)
		}
	}
	for _, a := range fx.Forget {
		if p := h.procs[a]; p != nil && p.over {
			delete(h.procs, a)
		}
	}
	if fx.Keep != nil {
		h.keep(*fx.Keep)
	}
	if fx.KeepUsage != nil {
		h.keepUsage(*fx.KeepUsage)
	}
	for _, m := range fx.Send {
		h.send(m.To, m.Msg)
	}
	if fx.Poll {
		h.poll()
	}
	for _, p := range fx.Want {
		h.wantOwner(p, true)
	}
	for _, p := range fx.Unwant {
		h.wantOwner(p, false)
	}
	for _, a := range fx.Admit {
		h.inbox = append(h.inbox, worker.Admitted{Attempt: a.Attempt})
	}
	for _, s := range fx.Ports {
		h.inbox = append(h.inbox, worker.PortFound{Attempt: s.Attempt, Port: s.Try[0]})
	}
}

// keep has the next life of the daemon find what is set aside, as the disk does.
func (h *host) keep(now worker.Quarantine) {
	text, err := json.Marshal(now)
	if err == nil {
		h.cfg.Quarantine = worker.Quarantine{}
		err = json.Unmarshal(text, &h.cfg.Quarantine)
	}
	if err != nil {
		h.w.fail("the devices set aside at %s cannot be written: %v", h.peer, err)
	}
}

// keepUsage has the next life of the daemon find what its users have used, as the disk does.
func (h *host) keepUsage(now worker.Usage) {
	text, err := json.Marshal(now)
	if err == nil {
		h.cfg.Usage = worker.Usage{}
		err = json.Unmarshal(text, &h.cfg.Usage)
	}
	if err != nil {
		h.w.fail("the usage of %s cannot be written: %v", h.peer, err)
	}
}

// wantOwner notes whether the worker's core wants a session with the peer.
func (h *host) wantOwner(p job.Peer, wants bool) {
	if l := h.linkTo(p); l != nil {
		l.hostWants = wants
		l.tend()
	}
}

// carry does what a step of the scheduler's core has decided, in the order of
// its loop.
func (o *owner) carry(fx scheduler.Effects) {
	o.proposeAll(fx.Propose)
	for _, m := range fx.Send {
		o.send(m.To, m.Msg)
	}
	if fx.Read != 0 {
		o.readIndex(fx.Read)
	}
	for _, class := range fx.Find {
		o.find(class)
	}
	for _, p := range fx.Want {
		o.want(p, true)
	}
	for _, p := range fx.Unwant {
		o.want(p, false)
	}
	if fx.Announce {
		o.announce(fx.Wants)
	}
	o.save(fx.Rows, fx.Gone)
	for _, r := range fx.Reply {
		o.replied(r)
	}
	o.w.stats.effects += len(fx.Propose) + len(fx.Send) + len(fx.Find) + len(fx.Want) + len(fx.Unwant) + len(fx.Rows) + len(fx.Gone) + len(fx.Reply)
	for _, t := range fx.Notices {
		if t.Kind == scheduler.IllegalMove {
			o.w.fail("%s: illegal move of %s: %s", o.peer, t.Attempt, t.Detail)
		}
	}
	if o.w.trace != nil {
		for _, t := range fx.Notices {
			o.w.logf("%s tells: kind %d %s %s %s %s", o.peer, t.Kind, t.Attempt, t.Node, t.State, t.Detail)
		}
	}
}

// written is a record as the journal gives it back: a time on disk has no
// monotonic reading.
func written(r job.Record) job.Record {
	switch r := r.(type) {
	case job.SubmitRecord:
		r.At = r.At.Round(0)
		return r
	case job.UnassignRecord:
		r.At = r.At.Round(0)
		return r
	case job.UnassignGangRecord:
		r.At = r.At.Round(0)
		return r
	case job.ResultRecord:
		r.At, r.Exit.Began, r.Exit.Ended = r.At.Round(0), r.Exit.Began.Round(0), r.Exit.Ended.Round(0)
		return r
	case job.CancelRecord:
		r.At = r.At.Round(0)
		return r
	default:
		return r
	}
}

// brief is a message in a line of the log.
func brief(msg any) string {
	switch m := msg.(type) {
	case lease.Offer:
		return fmt.Sprintf("Offer %x of %s: %s, priority %d, %s, waits %v, age %v, gang %d firm %v preempt %v", m.ID, m.Attempt, needText(m.Need), m.Priority, m.User, m.Wait, m.Age, m.Gang, m.Firm, m.Preempt)
	case lease.Commit:
		return fmt.Sprintf("Commit %x of %s, session %x, devices %v, %s port %d, conditional %v", m.Offer, m.Attempt, m.Session, m.Devices, m.Address, m.Port, m.Conditional)
	case lease.Decline:
		return fmt.Sprintf("Decline %x of %s: %s, never %v, %s", m.Offer, m.Attempt, m.Reason, m.Never, briefFree(m.Free))
	case lease.Release:
		return fmt.Sprintf("Release %x", m.Offer)
	case lease.Start:
		return fmt.Sprintf("Start %x of %s, session %x", m.Offer, m.Attempt, m.Session)
	case lease.Hello:
		return fmt.Sprintf("Hello %s, %s", m.Profile.Store, briefFree(m.Free))
	case lease.Availability:
		return fmt.Sprintf("Availability %s, draining %v %s", briefFree(m.Free), m.Draining, m.Detail)
	case lease.Event:
		return fmt.Sprintf("Event %d of %s: %s %s", m.N, m.Attempt, m.State, m.Refused)
	}
	return fmt.Sprintf("%T %+v", msg, msg)
}

func briefFree(f lease.Free) string { return fmt.Sprintf("free %d CPUs %d GPUs", f.CPUs, len(f.GPUs)) }

// wireRefuses says why the session between two daemons would not take the
// message; empty if it would. It has the checks that depend on what a core
// computes, not those of what a user writes.
func wireRefuses(msg any) string {
	switch m := msg.(type) {
	case lease.Offer:
		switch {
		case m.Age < 0:
			return "a negative age of " + m.Age.String()
		case m.Limit < 0 || m.Limit > lease.MaxLimit:
			return "a limit of " + m.Limit.String()
		case m.Wait < 0 || m.Wait > lease.MaxOfferWait:
			return "a wait of " + m.Wait.String()
		}
	case lease.Cancel:
		if m.Grace < 0 || m.Grace > time.Hour {
			return "a grace of " + m.Grace.String()
		}
	case lease.Renew:
		if len(m.Live) > lease.MaxLive {
			return "too many live attempts"
		}
	case lease.Availability:
		if len(m.UnderQuota) > lease.MaxUnderQuota {
			return "too many users under quota"
		}
		if len(m.Forecasts) > lease.MaxForecasts {
			return "too many forecasts"
		}
		for _, f := range m.Forecasts {
			if max(f.Start, f.Kept, f.Shared) != f.Start+f.Kept+f.Shared || min(f.Start, f.Kept, f.Shared) < 0 {
				return fmt.Sprintf("a forecast %+v", f)
			}
		}
		if m.Usage != nil {
			return usageRefused(m.Usage)
		}
	}
	return ""
}

// usageRefused says what is out of bounds in what a host tells of its users.
func usageRefused(u *lease.Usage) string {
	if len(u.Entries) > lease.MaxUsage {
		return "the usage of too many accounts"
	}
	for _, e := range u.Entries {
		if !(e.Used.GPU >= 0 && e.Used.GPU <= lease.MaxUsed) || !(e.Used.CPU >= 0 && e.Used.CPU <= lease.MaxUsed) {
			return fmt.Sprintf("usage of %v by %s", e.Used, e.Account)
		}
	}
	return ""
}
