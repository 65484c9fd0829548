package scheduler

// The end of ownership: another daemon owns the jobs from here on, and this one must not act on them.

import (
	"errors"
	"slices"

	"github.com/musterhq/muster/job"
)

// ErrNotOwner says that this daemon no longer owns the jobs of the group. What was asked for may have been done or not:
// ask the daemon that owns them now.
var ErrNotOwner = errors.New("scheduler: another daemon answers for these jobs now")

// Deposed ends the ownership that began with the Lead entry of this epoch.
type Deposed struct{ Epoch job.Epoch }

func (Deposed) event() {}

// deposed takes back all offers, answers all requests, and forgets what only an owner does. The jobs stay: entries that
// the new owner writes keep them up to date.
func (c *Core) deposed(epoch job.Epoch) {
	if !c.lead || epoch != c.epoch {
		return
	}
	c.lead, c.outgoing = false, 0
	for _, j := range c.table.Jobs() {
		for _, t := range slices.Clone(c.jobs[j.ID].tasks) {
			c.ground(t)
			t.proposed = 0
		}
	}
	c.forgetUnconfirmed()
	clear(c.deaths)
	tokens := make([]Token, 0, len(c.asks.open))
	for tok := range c.asks.open {
		tokens = append(tokens, tok)
	}
	slices.Sort(tokens)
	for _, tok := range tokens {
		c.answer(tok, nil, ErrNotOwner)
	}
	c.asks = newAsks()
	for _, k := range c.classes {
		k.looking, k.announced = false, false
	}
	c.announce = true
}

// Deposed tells of the end of ownership, in order with Deliver.
func (l *Loop) Deposed(epoch job.Epoch) { l.box.putAlways(mail{event: Deposed{epoch}}) }

// NotProposed gives back records that the journal took and did not commit, in order with Deliver.
func (l *Loop) NotProposed(records []job.Record, err error) {
	l.box.putAlways(mail{event: NotProposed{Records: records, Err: err}})
}
