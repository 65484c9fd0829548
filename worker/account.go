package worker

// The account: what attempts and users hold of this host, and what is free.

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/turn"
)

// account records what the host has, and what attempts and users hold of it.
type account struct {
	turn     *turn.Turn
	capacity capacity
	quotas   quotas
	meter    *meter
	holders  map[string]int // number of attempts that hold a device, by its UUID
	yields   map[int]yields // what preemptible tasks hold, by precedence
	left     contract.Free  // what is free; valid unless stale
	stale    bool
	foreign  func() []contract.ForeignUse // what programs that muster did not start use of the devices
}

func newAccount(cfg *Config, t *turn.Turn) (*account, error) {
	a := &account{turn: t, quotas: newQuotas(cfg.Limits, t), meter: newMeter(cfg, t), holders: map[string]int{}, yields: map[int]yields{}, stale: true}
	var err error
	a.capacity, err = newCapacity(cfg.Profile)
	return a, err
}

// setProfile replaces the total resources of the host. It returns an error if the profile is not valid.
func (a *account) setProfile(p contract.Profile) error {
	if err := a.capacity.setProfile(p); err != nil {
		return err
	}
	a.meter.has = offeredBy(p)
	a.freeChanged()
	a.turn.Arbitrate()
	return nil
}

// setLimits replaces the limits of users.
func (a *account) setLimits(l Limits) {
	a.quotas.set(l)
	a.quotas.refusals.notifyAll()
	a.turn.Reopen()
}

// hold allocates the resources of an offer to its attempt. It allocates all of them, or none and returns false.
func (a *account) hold(m *contract.Offer, devices []string) bool {
	need := a.capacity.allot(m.Need, devices)
	if err := a.capacity.hold(m.Attempt, need, devices); err != nil {
		a.turn.Log(slog.LevelError, "chosen devices cannot be held", slog.String("attempt", m.Attempt.String()), slog.Any("error", err))
		return false
	}
	a.count(fairshare.Account{User: m.User, Project: m.Project}, need, devices, 1)
	return true
}

// adopt records what an earlier run of the daemon had allocated to an attempt. It returns an error if the devices have
// changed since; CPUs, memory and the user's usage are recorded even then.
func (a *account) adopt(rec contract.Record) error {
	err := a.capacity.adopt(rec)
	a.count(fairshare.Account{User: rec.User, Project: rec.Project}, rec.Need, rec.Devices, 1)
	return err
}

// release frees what an attempt holds.
func (a *account) release(rec *contract.Record) {
	a.capacity.release(rec.Attempt, rec.Need, rec.Devices)
	a.count(fairshare.Account{User: rec.User, Project: rec.Project}, rec.Need, rec.Devices, -1)
	a.turn.Arbitrate()
}

func (a *account) count(who fairshare.Account, need job.Resources, devices []string, sign int) {
	a.quotas.use(who.User, need, sign)
	a.meter.use(who, need, devices, sign)
	for _, d := range devices {
		if a.holders[d] += sign; a.holders[d] == 0 {
			delete(a.holders, d)
		}
	}
	a.freeChanged()
}

// freeChanged marks that what is free has changed.
func (a *account) freeChanged() {
	a.stale = true
	a.turn.Announce()
}

// free returns what is free.
func (a *account) free() contract.Free {
	if a.stale {
		a.left, a.stale = a.capacity.free(), false
		a.left.Preemptible, a.left.Foreign = a.preemptible(), a.foreign()
	}
	return a.left
}

// missing returns why a need does not fit now, for people.
func (a *account) missing(need job.Resources) string {
	if why := a.capacity.short(need); why != "" {
		return why
	}
	if gpu.Count(need) > 0 {
		return fmt.Sprintf("gpus: %d wanted, not free or held back for offers that go first", gpu.Count(need))
	}
	return "held back for offers that go first"
}

// yields is what the preemptible tasks of one priority and level hold.
type yields struct {
	tasks int
	contract.Preemptible
}

// yield counts a preemptible task that starts or, with sign -1, ends.
func (a *account) yield(priority, level int, rec *contract.Record, sign int) {
	key := contract.Precedence(priority, level)
	y := a.yields[key]
	y.tasks += sign
	y.Priority, y.Level = priority, level
	y.CPUs += sign * rec.Need.CPUs
	y.Memory += job.Size(sign) * rec.Need.Memory
	y.GPUs += sign * len(rec.Devices)
	a.yields[key] = y
	if y.tasks == 0 {
		delete(a.yields, key)
	}
	a.freeChanged()
}

// preemptible returns what preemptible tasks hold, the lowest precedence first.
func (a *account) preemptible() (out []contract.Preemptible) {
	for _, y := range a.yields {
		out = append(out, y.Preemptible)
	}
	slices.SortFunc(out, func(a, b contract.Preemptible) int { return cmp.Compare(a.Precedence(), b.Precedence()) })
	if len(out) > contract.MaxPreemptible {
		out = byPriority(out)
	}
	return out
}

// byPriority merges the entries of each priority into one with level 0. So no task counts as easier to end than it is.
func byPriority(all []contract.Preemptible) (out []contract.Preemptible) {
	for _, y := range all {
		if y.Level = 0; len(out) == 0 || out[len(out)-1].Priority != y.Priority {
			out = append(out, y)
			continue
		}
		last := &out[len(out)-1]
		last.CPUs, last.Memory, last.GPUs = last.CPUs+y.CPUs, last.Memory+y.Memory, last.GPUs+y.GPUs
	}
	return out
}
