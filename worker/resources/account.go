// Package resources counts what this host has, what attempts and users hold of it and have used of it, and what users may hold.
package resources

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
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// Account records what the host has, and what attempts and users hold of it.
type Account struct {
	turn     *step.Turn
	Capacity Capacity
	Quotas   quotas
	Meter    *Meter
	holders  map[string]int // number of attempts that hold a device, by its UUID
	yields   map[int]yields // what preemptible tasks hold, by precedence
	left     contract.Free  // what is free; valid unless stale
	stale    bool
	foreign  func() []contract.ForeignUse // what programs that muster did not start use of the devices
}

// NewAccount returns the account of a host on which nothing is held. saved is the usage that an earlier run of the daemon has saved.
func NewAccount(p contract.Profile, l Limits, w fairshare.Weights, saved Usage, t *step.Turn) (*Account, error) {
	a := &Account{turn: t, Quotas: newQuotas(l, t), Meter: newMeter(p, w, saved, t), holders: map[string]int{}, yields: map[int]yields{}, stale: true}
	var err error
	a.Capacity, err = newCapacity(p)
	return a, err
}

// SetProfile replaces the total resources of the host. It returns an error if the profile is not valid.
func (a *Account) SetProfile(p contract.Profile) error {
	if err := a.Capacity.setProfile(p); err != nil {
		return err
	}
	a.Meter.has = offeredBy(p)
	a.FreeChanged()
	a.turn.Arbitrate()
	return nil
}

// SetLimits replaces the limits of users.
func (a *Account) SetLimits(l Limits) {
	a.Quotas.set(l)
	a.Quotas.Refusals.notifyAll()
	a.turn.Reopen()
}

// Hold allocates the resources of an offer to its attempt. It allocates all of them, or none and returns false.
func (a *Account) Hold(m *contract.Offer, devices []string) bool {
	need := a.Capacity.Allot(m.Need, devices)
	if err := a.Capacity.hold(m.Attempt, need, devices); err != nil {
		a.turn.Log(slog.LevelError, "chosen devices cannot be held", slog.String("attempt", m.Attempt.String()), slog.Any("error", err))
		return false
	}
	a.count(fairshare.Account{User: m.User, Project: m.Project}, need, devices, 1)
	return true
}

// Adopt records what an earlier run of the daemon had allocated to an attempt. It returns an error if the devices have
// changed since; CPUs, memory and the user's usage are recorded even then.
func (a *Account) Adopt(rec contract.Record) error {
	err := a.Capacity.adopt(rec)
	a.count(fairshare.Account{User: rec.User, Project: rec.Project}, rec.Need, rec.Devices, 1)
	return err
}

// Release frees what an attempt holds.
func (a *Account) Release(rec *contract.Record) {
	a.Capacity.release(rec.Attempt, rec.Need, rec.Devices)
	a.count(fairshare.Account{User: rec.User, Project: rec.Project}, rec.Need, rec.Devices, -1)
	a.turn.Arbitrate()
}

func (a *Account) count(who fairshare.Account, need job.Resources, devices []string, sign int) {
	a.Quotas.use(who.User, need, sign)
	a.Meter.use(who, need, devices, sign)
	for _, d := range devices {
		if a.holders[d] += sign; a.holders[d] == 0 {
			delete(a.holders, d)
		}
	}
	a.FreeChanged()
}

// FreeChanged marks that what is free has changed.
func (a *Account) FreeChanged() {
	a.stale = true
	a.turn.Announce()
}

// Free returns what is free.
func (a *Account) Free() contract.Free {
	if a.stale {
		a.left, a.stale = a.Capacity.free(), false
		a.left.Preemptible, a.left.Foreign = a.preemptible(), a.foreign()
	}
	return a.left
}

// SetAside frees what an attempt holds, until TakeBack. The usage of its user stays.
func (a *Account) SetAside(rec *contract.Record) {
	a.Capacity.release(rec.Attempt, rec.Need, rec.Devices)
}

// TakeBack reverts SetAside.
func (a *Account) TakeBack(rec *contract.Record) {
	_ = a.Capacity.adopt(*rec) // SetAside has just released it
}

// Allows reports whether a user's quota would allow this need if he did not hold what these attempts hold.
func (a *Account) Allows(user string, need job.Resources, without []*contract.Record) bool {
	for _, rec := range without {
		a.Quotas.shift(rec.User, rec.Need, -1)
		defer a.Quotas.shift(rec.User, rec.Need, 1)
	}
	return a.Quotas.Over(user, a.Capacity.Whole(need)) == ""
}

// HoldersOf returns how many attempts hold a device.
func (a *Account) HoldersOf(device string) int { return a.holders[device] }

// Idle reports whether no attempt holds a device.
func (a *Account) Idle() bool { return len(a.holders) == 0 }

// CountForeign sets the function that says what programs that muster did not start use of the devices.
func (a *Account) CountForeign(uses func() []contract.ForeignUse) { a.foreign = uses }

// Usage returns what users and projects have used of this host, and what they may hold. The priorities are those of the view.
func (a *Account) Usage(now leaseclock.Moment, p *contract.Priorities) UsageView {
	v := a.Meter.view(now)
	v.Limits, v.Priorities = a.Quotas.limits, p
	return v
}

// Missing returns why a need does not fit now, for people.
func (a *Account) Missing(need job.Resources) string {
	if why := a.Capacity.Short(need); why != "" {
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

// Yield counts a preemptible task that starts or, with sign -1, ends.
func (a *Account) Yield(priority, level int, rec *contract.Record, sign int) {
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
	a.FreeChanged()
}

// preemptible returns what preemptible tasks hold, the lowest precedence first.
func (a *Account) preemptible() (out []contract.Preemptible) {
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
