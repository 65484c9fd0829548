package p2p

// Access to internals for tests.

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// grant is decide without the grant that goes with a credential.
func (i *issuer) grant(p peer.ID, q *wirepb.JoinRequest, now time.Time) (*Credential, error) {
	s, err := i.decide(p, q, now)
	if err != nil {
		return nil, err
	}
	return s.own, nil
}

// Protocols returns every protocol that a daemon serves.
func Protocols() []Protocol { return slices.Clone(protocols) }

// ErrBadAddr is errBadAddr.
var ErrBadAddr = errBadAddr

// MadeUpToken returns a token that differs from the real one only in its secret.
func MadeUpToken(t *testing.T, real string) string {
	t.Helper()
	tok, err := parseToken(real)
	if err != nil {
		t.Fatal(err)
	}
	if tok.secret, err = newSecret(); err != nil {
		t.Fatal(err)
	}
	return tok.String()
}

// IssueTo returns a credential for a new key, signed by h as an inviter.
func IssueTo(t *testing.T, h *Host) *Credential {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(pub, err)
	}
	me, err := newIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	m := h.own.load()
	c, err := authority{key: h.own.identity.key, chain: m.issuing, cluster: m.key}.issue(me.id, AllRoles, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ShownCredential returns the credential that h shows.
func ShownCredential(h *Host) *Credential { return h.own.load().own }

// Firm reports whether h can be endorsed by other inviters than those that let it in.
func Firm(h *Host) bool { return firm(h.own.load().grants) }

// Endorsed reports whether the credential that h shows has an endorsement.
func Endorsed(h *Host) bool { return h.own.load().own.endorsement != nil }

// Check returns the answer of h's gate to a peer with this credential.
func (h *Host) Check(c *Credential) error {
	_, err := h.admission.check(c.id, c.toWire(), time.Now())
	return err
}

// StopRenewals makes h renew no credentials until resume is called.
func StopRenewals(h *Host) (resume func()) {
	h.own.changing <- struct{}{}
	return func() { <-h.own.changing }
}

// RevokeWithoutRight makes h sign and spread a revocation that it has no right to, as a hostile member would.
func RevokeWithoutRight(t *testing.T, h *Host, p job.Peer, withInvited bool) {
	t.Helper()
	id, err := peer.Decode(string(p))
	if err != nil {
		t.Fatal(err)
	}
	m := h.own.load()
	r, err := authority{key: h.own.identity.key, cluster: m.key, chain: m.own}.revoke(word{peer: id, number: maxNumber, withInvited: withInvited}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := h.revoked.add(r); err != nil || !kept {
		t.Fatal(kept, err)
	}
	h.spreader.news <- struct{}{}
}

// RevocationsBy returns the number of revocations by h that another host knows.
func RevocationsBy(knower, h *Host) int {
	knower.revoked.mu.Lock()
	defer knower.revoked.mu.Unlock()
	return len(knower.revoked.stands.by[h.own.identity.id])
}

// ForgeLongCredential returns a credential for a new key that h signs for years, beyond the end of its own.
func ForgeLongCredential(t *testing.T, h *Host) *Credential {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	me, err := newIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	m := h.own.load()
	chain := *m.issuing
	chain.NotAfter = time.Now().Add(10 * 365 * 24 * time.Hour)
	c, err := authority{key: h.own.identity.key, chain: &chain, cluster: m.key}.issue(me.id, AllRoles, chain.NotAfter)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// CheckTwinProofs checks which proofs are valid, and which of two daemons is the younger one.
func CheckTwinProofs(t *testing.T) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	me, err := newIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	tw := newTwins(&ownMembership{identity: me}, connected{}, nil, nil, nil)
	nonce, other := make([]byte, nonceSize), make([]byte, nonceSize)
	other[0] = 1
	good := tw.prove(nonce, nil)
	if !proves(me.id, nonce, good) {
		t.Error("a valid proof was refused")
	}
	if proves(me.id, other, good) {
		t.Error("a proof was accepted for another nonce")
	}
	for name, change := range map[string]func(p *wirepb.TwinProof){
		"age":       func(p *wirepb.TwinProof) { p.AgeNs++ },
		"instance":  func(p *wirepb.TwinProof) { p.Instance = append([]byte{p.Instance[0] ^ 1}, p.Instance[1:]...) },
		"signature": func(p *wirepb.TwinProof) { p.Signature = nil },
		"short":     func(p *wirepb.TwinProof) { p.Instance = p.Instance[1:] },
	} {
		p := tw.prove(nonce, nil)
		if change(p); proves(me.id, nonce, p) {
			t.Errorf("%s: a changed proof was accepted", name)
		}
	}
	if p := tw.prove(nonce, nil); true {
		if p.Loser = tw.instance[:]; proves(me.id, nonce, p) {
			t.Error("a proof with a loser that was not signed was accepted")
		}
	}
	two := func() (a, b *Twins) { // of the same key; a has the lower number
		a, b = newTwins(tw.own, connected{}, nil, nil, nil), newTwins(tw.own, connected{}, nil, nil, nil)
		if bytes.Compare(a.instance[:], b.instance[:]) > 0 {
			a, b = b, a
		}
		return a, b
	}
	asks := func(who, whom *Twins, age, other, late time.Duration) (stops bool) {
		p := whom.prove(nonce, who.instance[:])
		if !proves(me.id, nonce, p) {
			t.Fatal("a valid proof was refused")
		}
		p.AgeNs = int64(other)
		return who.loses(p, age+late)
	}
	for _, c := range []struct{ a, b time.Duration }{{time.Hour, time.Second}, {time.Second, time.Hour}} {
		a, b := two()
		if got, want := asks(a, b, c.a, c.b, 0), c.a < c.b; got != want {
			t.Errorf("ages %s and %s, first stops: got %v, want %v", c.a, c.b, got, want)
		}
		if got, want := asks(b, a, c.b, c.a, 0), c.b < c.a; got != want {
			t.Errorf("ages %s and %s, second stops: got %v, want %v", c.a, c.b, got, want)
		}
	}
	// Whatever the difference and however late the answers, exactly one of the two stops.
	for _, bFirst := range []bool{false, true} {
		for _, late := range []time.Duration{0, time.Millisecond, 400 * time.Millisecond, time.Second} {
			for d := -4 * time.Second; d <= 4*time.Second; d += 100 * time.Millisecond {
				a, b := two()
				var aStops, bStops bool
				for turn := 0; turn < 4 && !aStops && !bStops; turn++ {
					if turn%2 == 0 == bFirst {
						bStops = asks(b, a, time.Minute+d, time.Minute, late)
						continue
					}
					aStops = asks(a, b, time.Minute, time.Minute+d, late)
				}
				if !aStops && !bStops {
					t.Errorf("the second is older by %s, and answers take %s: none stops, want one", d, late)
				}
				if aStops && asks(b, a, time.Minute+d, time.Minute, 0) || bStops && asks(a, b, time.Minute, time.Minute+d, 0) {
					t.Errorf("the second is older by %s, and answers take %s: both stop, want one", d, late)
				}
			}
		}
	}
}

// CheckTwinSightings checks that new sightings displace old ones.
func CheckTwinSightings(t *testing.T) {
	t.Helper()
	tw := newTwins(nil, connected{}, nil, nil, slog.New(slog.DiscardHandler))
	for i := range maxSightings + 1 {
		tw.note(peer.ID(fmt.Sprint("old ", i)), "here", "there")
	}
	if len(tw.seen) != maxSightings {
		t.Fatalf("got %d sightings, want %v", len(tw.seen), maxSightings)
	}
	time.Sleep(twinKept)
	tw.note("new", "here", "there")
	if len(tw.seen) != 1 {
		t.Errorf("got %d sightings, want the new one alone", len(tw.seen))
	}
}
