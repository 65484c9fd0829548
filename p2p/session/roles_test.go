package session

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/wirepb"
)

// TestEveryMessageHasASender checks that the table has each message of the protocol and agrees with the types of
// package contract: a message to workers is one of the scheduler.
func TestEveryMessageHasASender(t *testing.T) {
	fields := (&wirepb.Frame{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	if fields.Len() != len(senders) {
		t.Errorf("got %d messages, want %d as in the table", fields.Len(), len(senders))
	}
	for body, role := range senders {
		for _, has := range []p2p.Roles{0, p2p.RoleWorker, p2p.RoleScheduler, p2p.RoleInviter, p2p.AllRoles} {
			f := &wirepb.Frame{}
			frame := reflect.New(body.Elem())
			frame.Elem().Field(0).Set(reflect.New(frame.Elem().Field(0).Type().Elem()))
			reflect.ValueOf(f).Elem().FieldByName("Body").Set(frame)
			for _, knows := range []bool{true, false} {
				warned, denied := 0, 0
				c := roleCheck{roles: func() p2p.Roles { return has }, knows: knows, denied: func(error) { denied++ }, first: func(error) { warned++ }}
				for range 2 {
					drop, err := c.check(f)
					if allowed := has.Has(role); allowed != (err == nil && !drop) || err != nil && (!knows || !errors.Is(err, ErrRole)) {
						t.Errorf("%s from a peer with %q: dropped %v, error %v, want that only an allowed message passes", body, has, drop, err)
					}
				}
				if (denied > 0) == has.Has(role) {
					t.Errorf("%s from a peer with %q: got %d denials, want some only without the role", body, has, denied)
				}
				if !knows && !has.Has(role) && warned != 1 {
					t.Errorf("%s: got %d warnings, want 1", body, warned)
				}
			}
		}
	}
	kinds := map[p2p.Roles]int{}
	for role := range maps.Values(senders) {
		kinds[role]++
	}
	if want := map[p2p.Roles]int{p2p.RoleScheduler: 9, p2p.RoleWorker: 7, 0: 5}; !maps.Equal(kinds, want) {
		t.Errorf("messages by role: got %v, want %v", kinds, want)
	}
}

func TestPresentRolesDecideOnMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		at := a.Manager.host.(*member)
		give := func(r p2p.Roles) { at.roles.Store(&map[peer.ID]p2p.Roles{b.host.ID(): r}) }
		give(p2p.AllRoles)
		a.Want(b.id())
		time.Sleep(time.Second)
		if err := b.Send(a.id(), contract.Release{Offer: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !a.isUp(b.id()) || a.Denied() != 0 {
			t.Fatalf("a scheduler's message: got %d denied, up %v, want 0, true", a.Denied(), a.isUp(b.id()))
		}
		give(p2p.RoleWorker) // its renewed credential says less
		if err := b.Send(a.id(), contract.Release{Offer: 2}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if a.isUp(b.id()) || a.Denied() != 1 || !errors.Is(a.lastErr(), ErrRole) {
			t.Errorf("a message that the role does not allow: got %d denied, up %v, %v, want 1, false, ErrRole", a.Denied(), a.isUp(b.id()), a.lastErr())
		}
		time.Sleep(2 * DefaultConfig().BackoffMax)
		if !a.isUp(b.id()) {
			t.Error("the peer does not get a session again")
		}
		give(p2p.RoleScheduler)
		if err := b.Send(a.id(), contract.Release{Offer: 3}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !a.isUp(b.id()) || a.Denied() != 1 {
			t.Error("a message is refused after the role came back")
		}
		if slices.ContainsFunc(a.errs, func(err error) bool { return errors.Is(err, ErrInvalid) }) {
			t.Errorf("got errors %v, want no ErrInvalid", a.errs)
		}
	})
}
