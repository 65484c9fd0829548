package worker

import (
	"container/list"
	"reflect"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// Access to internals for tests.

// Bounds that tests reach.
const (
	MaxQueued   = maxQueued
	MaxAge      = admission.MaxAge
	MaxRefusals = resources.MaxRefusals
	StartWithin = admission.StartWithin
)

// Turns reports whether what is free is set aside for an offer now, and until when.
func Turns(since, now leaseclock.BootTime, first time.Duration) (kept bool, until leaseclock.BootTime) {
	return admission.Turns(since, now, first)
}

// Booked returns the booked times of queued offers.
func Booked(c *Core) map[uint64]leaseclock.BootTime {
	out := map[uint64]leaseclock.BootTime{}
	for _, o := range c.queue.All() {
		if at := o.BookedFor(); o.State == admission.Queued && at != 0 {
			out[o.Key.ID] = at
		}
	}
	return out
}

// Refusals returns how many refusals for quota a core keeps, including those of which it still has to tell a scheduler.
func Refusals(c *Core) int {
	return c.account.Quotas.Refusals.Size()
}

// Arbitrates passes an event to a core, and reports whether the step will arbitrate because of it. The step itself is
// due.
func Arbitrates(c *Core, now leaseclock.Moment, ev Event) bool {
	c.turn.Begin(now.Boot)
	c.take(now, ev)
	return c.turn.Arbitrates()
}

// Bind makes a daemon the owner of a group, whoever founded it. It is for groups without a proof.
func Bind(c *Core, g job.Group, owner job.Peer) {
	claims := c.leases.claims
	if claims.groups[g] == nil {
		claims.groups[g] = newGroup(g)
	}
	claims.groups[g].epoch = contract.Epoch{}
	claims.bind(leaseclock.Moment{}, claims.groups[g], owner)
}

// Residents returns how many users a core remembers as looked up.
func Residents(c *Core) int { return c.offers.residents.Size() }

// Sizes returns the lengths of all slices and maps in a core, by the path of their fields. Lengths with the same path
// are added.
func Sizes(c *Core) map[string]int {
	out := map[string]int{}
	seen := map[uintptr]bool{}
	sizes(reflect.ValueOf(c), "", seen, out)
	return out
}

func sizes(v reflect.Value, at string, seen map[uintptr]bool, out map[string]int) {
	kind := v.Kind()
	if (kind == reflect.Pointer || kind == reflect.Interface) && v.IsNil() {
		return
	}
	if kind == reflect.Pointer {
		if seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		if v.Type() == reflect.TypeFor[*list.List]() {
			out[at] += int(v.Elem().FieldByName("len").Int())
			return
		}
	}
	if kind == reflect.Pointer || kind == reflect.Interface {
		sizes(v.Elem(), at, seen, out)
	}
	if kind == reflect.Struct {
		for i := range v.NumField() {
			sizes(v.Field(i), strings.TrimPrefix(at+"."+v.Type().Field(i).Name, "."), seen, out)
		}
	}
	if kind == reflect.Map {
		out[at] += v.Len()
		for it := v.MapRange(); it.Next(); {
			sizes(it.Value(), at+"[]", seen, out)
		}
	}
	if kind == reflect.Slice {
		out[at] += v.Len()
		for i := range v.Len() {
			sizes(v.Index(i), at+"[]", seen, out)
		}
	}
}

// Flood queues offers beyond the bounds of the queue.
func (c *Core) Flood(now leaseclock.Moment, n int, from job.Peer, offer func(i int) contract.Offer) {
	for i := range n {
		m := offer(i)
		c.queue.Add(now, admission.Key{Peer: from, ID: m.ID}, m)
	}
}
