package worker

// The account: who holds what of this host, and what is left of it.

import (
	"fmt"
	"log/slog"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// account is what the host has, and what attempts and users hold of it.
type account struct {
	turn     *turn
	capacity capacity
	quotas   quotas
	holders  map[string]int // attempts that hold a device, by its UUID
	left     lease.Free     // what is free, unless stale
	stale    bool
}

func newAccount(cfg *Config, t *turn) (*account, error) {
	a := &account{turn: t, quotas: newQuotas(cfg.Limits), holders: map[string]int{}, stale: true}
	var err error
	a.capacity, err = newCapacity(cfg.Profile)
	return a, err
}

// setProfile takes what the host could ever give from now on, or says what is wrong with it.
func (a *account) setProfile(p lease.Profile) error {
	if err := a.capacity.setProfile(p); err != nil {
		return err
	}
	a.touch()
	a.turn.arbitrate = true
	return nil
}

// setLimits takes how much each user may hold from now on.
func (a *account) setLimits(l Limits) {
	a.quotas.limits = l
	a.quotas.refusals.easeAll()
	a.turn.reopen()
}

// hold takes resources for the attempt of an offer: all of them, or none and false.
func (a *account) hold(m *lease.Offer, devices []string) bool {
	if err := a.capacity.hold(m.Attempt, m.Need, devices); err != nil {
		a.turn.log(slog.LevelError, "chosen devices cannot be held", slog.String("attempt", m.Attempt.String()), slog.Any("error", err))
		return false
	}
	a.count(m.User, m.Need, devices, 1)
	return true
}

// adopt takes what an earlier life of the daemon had given to an attempt. An error says that its devices are not what
// they were; the rest is counted all the same.
func (a *account) adopt(rec lease.Record) error {
	err := a.capacity.adopt(rec)
	a.count(rec.User, rec.Need, rec.Devices, 1)
	return err
}

// give takes back what an attempt holds.
func (a *account) give(rec *lease.Record) {
	a.capacity.release(rec.Attempt, rec.Need, rec.Devices)
	a.count(rec.User, rec.Need, rec.Devices, -1)
	a.turn.arbitrate = true
}

func (a *account) count(user string, need job.Resources, devices []string, sign int) {
	a.quotas.use(user, need, sign)
	for _, d := range devices {
		if a.holders[d] += sign; a.holders[d] == 0 {
			delete(a.holders, d)
		}
	}
	a.touch()
}

// touch says that what is free has changed.
func (a *account) touch() { a.stale, a.turn.announce = true, true }

// free is what is left.
func (a *account) free() lease.Free {
	if a.stale {
		a.left, a.stale = a.capacity.free(), false
	}
	return a.left
}

// missing says for people why a need does not fit now.
func (a *account) missing(need job.Resources) string {
	if why := a.capacity.short(need); why != "" {
		return why
	}
	if gpu.Count(need) > 0 {
		return fmt.Sprintf("gpus: %d wanted, not free or kept for offers that came before", gpu.Count(need))
	}
	return "kept for offers that came before"
}
