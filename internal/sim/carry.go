package sim

// What the cores have decided, carried out in the order of their loops.

import (
	"encoding/json"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/resources"
)

// carry carries out what a round of the worker's core has decided. The core hears of the results in a later round.
func (h *host) carry(fx worker.Effects) {
	for _, t := range fx.Start {
		h.startProc(t)
	}
	for _, s := range fx.Stop {
		h.stopProc(s.Attempt, s.Grace, s.Reason)
	}
	for a, until := range fx.Extend { // in any order: each deadline stands for itself
		if p := h.procs[a]; p != nil && !p.hold && h.clock.read(h.w.now) < p.deadline {
			p.deadline = max(p.deadline, until)
		}
	}
	for _, a := range fx.Forget {
		if p := h.procs[a]; p != nil && p.over {
			delete(h.procs, a)
		}
	}
	if fx.Keep != nil && h.w.durable {
		keepQuarantine(h, *fx.Keep)
	}
	if fx.KeepUsage != nil && h.w.durable {
		keepUsage(h, *fx.KeepUsage)
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

// keepQuarantine keeps the quarantined devices for the next life of the daemon, as the disk does.
func keepQuarantine(h *host, now health.Quarantine) {
	text, err := json.Marshal(now)
	if err == nil {
		h.cfg.Quarantine = health.Quarantine{}
		err = json.Unmarshal(text, &h.cfg.Quarantine)
	}
	if err != nil {
		h.w.fail("the devices set aside at %s cannot be written: %v", h.peer, err)
	}
}

// keepUsage keeps what users have used for the next life of the daemon, as the disk does.
func keepUsage(h *host, now resources.Usage) {
	text, err := json.Marshal(now)
	if err == nil {
		h.cfg.Usage = resources.Usage{}
		err = json.Unmarshal(text, &h.cfg.Usage)
	}
	if err != nil {
		h.w.fail("the usage of %s cannot be written: %v", h.peer, err)
	}
}

// carry carries out what a step of the scheduler's core has decided.
func (o *owner) carry(fx step.Effects) {
	o.proposeAll(fx.Propose)
	for _, m := range fx.Send {
		o.send(m.To, m.Msg)
	}
	if fx.Read != 0 {
		confirm(o, fx.Read)
	}
	for _, f := range fx.Files {
		r := scheduler.ReadFile(f, func(id job.ID) ([]byte, error) { return o.files[id], nil })
		life := o.life
		o.w.after(0, func() {
			if o.life == life {
				o.tell(r)
			}
		})
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
	if o.w.watch != nil {
		o.w.watch.stepped(&fx)
	}
	for _, t := range fx.Notices {
		if t.Kind == step.IllegalMove || t.Kind == step.MessageDefect || t.Kind == step.RowDefect {
			o.w.fail("%s: defect %d of %s: %s", o.peer, t.Kind, t.Attempt, t.Detail)
		}
		if o.w.trace != nil {
			o.w.logf("%s tells: kind %d %s %s %s %s", o.peer, t.Kind, t.Attempt, t.Node, t.State, t.Detail)
		}
	}
}
