package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/job"
)

// found is a DHT in which these peers say that they own every group.
type found []job.Peer

func (f found) Find(_ context.Context, _ string, most int) <-chan job.Peer {
	c := make(chan job.Peer, len(f))
	for _, p := range f[:min(most, len(f))] {
		c <- p
	}
	close(c)
	return c
}

// foundings answers for the daemons that have founded a group. A daemon without an entry does not answer.
type foundings map[job.Peer]job.Founding

func (f foundings) Founding(ctx context.Context, p job.Peer, _ job.Group) (job.Founding, error) {
	if answer, known := f[p]; known {
		return answer, nil
	}
	<-ctx.Done()
	return job.Founding{}, ctx.Err()
}

type memoryKV map[string]string

func (m memoryKV) Put(k string, v []byte) error { m[k] = string(v); return nil }
func (m memoryKV) Delete(k string) error        { delete(m, k); return nil }
func (m memoryKV) Scan(prefix string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for k, v := range m {
		if strings.HasPrefix(k, prefix) {
			out[k] = []byte(v)
		}
	}
	return out, nil
}

func directoryOf(t *testing.T, kv memoryKV, dht finder, ask prover) *directory {
	t.Helper()
	d, err := newDirectory("me", homes{{Group: 1}}, kv, dht, ask, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A false claim does not lead requests to another daemon: not in a session, before or after the founder has claimed,
// not in the DHT, and not from what an earlier version has on disk.
func TestOnlyTheFounderGetsRequests(t *testing.T) {
	f, g := job.Found("amy")
	forged, _ := job.Found("mallory")
	kv := memoryKV{groupPrefix + g.String(): "mallory"}
	synctest.Test(t, func(t *testing.T) {
		dht := found{"mallory", "silent", "liar", "amy", "mallory"}
		for name, proofs := range map[string]foundings{
			"answers": {"mallory": f, "liar": forged, "amy": f}, // the peer named silent does not answer
		} {
			d := directoryOf(t, kv, dht, proofs)
			for _, claim := range []job.Founding{{}, f, forged} {
				if d.learn(g, "mallory", claim) || d.knows(g) {
					t.Fatalf("%s: mallory's claim with %s was accepted", name, claim)
				}
			}
			if p, self, err := d.Owner(t.Context(), g); p != "amy" || self || err != nil {
				t.Fatalf("%s: got owner %q, %t, %v, want amy", name, p, self, err)
			}
			if d.learn(g, "mallory", f) {
				t.Errorf("%s: mallory's claim was accepted after amy's", name)
			}
		}
		if p, _, err := directoryOf(t, kv, found{}, foundings{}).Owner(t.Context(), g); p != "amy" || err != nil {
			t.Errorf("after a restart: got owner %q, %v, want amy", p, err)
		}
		d := directoryOf(t, memoryKV{}, found{"mallory", "liar", "silent"}, foundings{"mallory": f, "liar": forged})
		if p, _, err := d.Owner(t.Context(), g); !errors.Is(err, errNoOwner) {
			t.Errorf("only liars are found: got owner %q, %v, want errNoOwner", p, err)
		}
	})
}

// A group that nobody proves has no owner, whoever claims it: neither in a session, nor in the DHT, nor from the disk
// of the version before, which believed the first daemon that claimed it.
func TestGroupsWithoutAProofHaveNoOwner(t *testing.T) {
	for _, dht := range []found{{"mallory"}, {}} {
		d := directoryOf(t, memoryKV{groupPrefix + job.Group(7).String(): "mallory"}, dht, foundings{"mallory": {}})
		if d.learn(7, "mallory", job.Founding{}) || d.learn(1, "mallory", job.Founding{}) {
			t.Error("a claim without a proof was accepted")
		}
		if p, _, err := d.Owner(t.Context(), 7); !errors.Is(err, errNoOwner) || d.knows(7) {
			t.Errorf("got owner %q, %v, known %t, want errNoOwner, false", p, err, d.knows(7))
		}
	}
}

// What a daemon says of its jobs is believed with any of its proofs, and with none of another daemon.
func TestDaemonIsBelievedWithAnyOfItsProofs(t *testing.T) {
	f, g := job.Found("amy")
	other, _ := job.Found("amy")
	b := directoryBackend{directory: directoryOf(t, memoryKV{}, found{}, foundings{})}
	for _, proofs := range [][]job.Founding{nil, {{}}, {other}} {
		if b.Believes("amy", g, proofs) {
			t.Errorf("believed with %v, want a refusal", proofs)
		}
	}
	if b.Believes("mallory", g, []job.Founding{other, f}) || !b.Believes("amy", g, []job.Founding{other, f}) || b.Believes("mallory", g, nil) {
		t.Error("want that only amy is believed, with her proof")
	}
	if !b.Believes("amy", g, nil) {
		t.Error("amy is no longer believed")
	}
}

// One member claims groups without end. Its oldest claims are dropped, also on disk, and other daemons stay known.
func TestDirectoryIsBoundedByMember(t *testing.T) {
	kv := memoryKV{}
	d := directoryOf(t, kv, found{}, foundings{})
	for i := range 100 {
		d.bind(job.Group(1000+i), job.Peer(fmt.Sprint("honest", i)), job.Founding{})
	}
	before := maps.Clone(kv)
	for i := range 100_000 {
		d.bind(job.Group(10_000+i), "mallory", job.Founding{})
	}
	if n := len(kv) - len(before); n != maxGroupsOf || len(d.owner) != len(kv) || len(d.of) != 101 {
		t.Errorf("mallory has %d rows, want %d; got %d owners and %d groups, want 101 and %d", n, maxGroupsOf, len(d.of), len(d.owner), len(kv))
	}
	for k, v := range before {
		if kv[k] != v {
			t.Errorf("%s: got %q, want %q", k, kv[k], v)
		}
	}
}
