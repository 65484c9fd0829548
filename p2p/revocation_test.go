package p2p

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/p2p/wirepb"
)

// guest returns a peer that an authority let in.
func guest(t testing.TB, by authority, roles Roles) actor {
	t.Helper()
	a := newActor(t)
	c, err := by.issue(a.id, roles, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	a.cred = c
	return a
}

func newRevocation(t testing.TB, by authority, say word) revocation {
	t.Helper()
	r, err := by.revoke(say, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openList returns an empty list of a cluster.
func openList(t testing.TB, cluster ed25519.PrivateKey, d disk) *revocations {
	t.Helper()
	r := newRevocations(d)
	pub := cluster.Public().(ed25519.PublicKey)
	if err := r.open(clusterOf(pub), pub); err != nil {
		t.Fatal(err)
	}
	return r
}

func mustMerge(t testing.TB, r *revocations, entries ...revocation) {
	t.Helper()
	var w []*wirepb.Revocation
	for _, e := range entries {
		w = append(w, e.wire)
	}
	if _, err := r.merge(w); err != nil {
		t.Fatal(err)
	}
}

func TestRevocationsAreVerified(t *testing.T) {
	cluster := key(t)
	r := openList(t, cluster, disk{})
	line := generations(t, cluster, 3)
	victim := guest(t, line[1].authority(cluster), RoleWorker)
	good := newRevocation(t, line[1].authority(cluster), word{peer: victim.id, number: 1, reason: "stolen"})
	if _, err := line[0].authority(cluster).revoke(word{peer: victim.id, reason: strings.Repeat("x", maxReason+1)}, time.Now()); err == nil {
		t.Error("a reason that is too long was signed")
	}
	if _, err := line[0].authority(cluster).revoke(word{peer: victim.id, number: maxNumber + 1}, time.Now()); err == nil {
		t.Error("a member revoked with a number above the maximum")
	}
	if _, err := victim.authority(cluster).revoke(word{peer: line[1].id, number: 1}, time.Now()); err == nil {
		t.Error("a worker revoked another")
	}
	if _, err := victim.authority(cluster).revoke(word{peer: victim.id, number: 1}, time.Now()); err != nil {
		t.Errorf("a worker revokes itself: got %v, want no error", err)
	}
	change := func(f func(*wirepb.Revocation)) *wirepb.Revocation {
		w := proto.Clone(good.wire).(*wirepb.Revocation)
		f(w)
		return w
	}
	alien := generations(t, key(t), 1)[0]
	for name, w := range map[string]*wirepb.Revocation{
		"changed":            change(func(w *wirepb.Revocation) { w.Body = append(w.Body, 0x1a, 0) }),
		"without an issuer":  change(func(w *wirepb.Revocation) { w.Issuer = nil }),
		"by another cluster": change(func(w *wirepb.Revocation) { w.Issuer = alien.cred.toWire() }),
		"by another member":  change(func(w *wirepb.Revocation) { w.Issuer = line[0].cred.toWire() }),
		"of an older form":   change(func(w *wirepb.Revocation) { w.Form = formFirst }),
		"of a newer form":    change(func(w *wirepb.Revocation) { w.Form = 2 }),
		"nothing":            {},
	} {
		if fresh, err := r.merge([]*wirepb.Revocation{good.wire, w}); !errors.Is(err, errBadRevocation) || len(fresh) != 0 {
			t.Errorf("%s: got %v, %v, want errBadRevocation and no entries", name, fresh, err)
		}
	}
	if r.verdict(victim.cred) != valid {
		t.Error("a message with one bad entry was accepted in part")
	}
	before := r.digest()
	fresh, err := r.merge([]*wirepb.Revocation{good.wire, good.wire})
	if err != nil || len(fresh) != 1 || r.verdict(victim.cred) != out || bytes.Equal(before, r.digest()) {
		t.Errorf("got %d new entries, %v, %v, want one that revokes", len(fresh), err, r.verdict(victim.cred))
	}
	if again, err := r.merge([]*wirepb.Revocation{good.wire}); err != nil || len(again) != 0 {
		t.Errorf("an entry that is known: got %d new, %v, want 0", len(again), err)
	}
}

// TestPeerIsRevokedByThoseThatLetItInOnly has inviters revoke each other. Only the inviters that let a peer in can
// revoke it, and the cluster key.
func TestPeerIsRevokedByThoseThatLetItInOnly(t *testing.T) {
	cluster := key(t)
	founder := guest(t, root(cluster), AllRoles)
	line := generations(t, cluster, 3) // the key let in line[0], which let in line[1], which let in line[2]
	other := guest(t, root(cluster), AllRoles)
	for name, c := range map[string]struct {
		by   actor
		of   actor
		want verdict
	}{
		"the founder":                   {line[0], founder, valid},
		"its own issuer":                {line[1], line[0], valid},
		"the issuer of its issuer":      {line[2], line[0], valid},
		"one whom another let in":       {other, line[1], valid},
		"one whom it let in":            {line[0], line[1], out},
		"one whom its guest let in":     {line[0], line[2], out},
		"itself":                        {line[1], line[1], out},
		"another of its own generation": {other, line[0], valid},
	} {
		r := openList(t, cluster, disk{})
		mustMerge(t, r, newRevocation(t, c.by.authority(cluster), word{peer: c.of.id, number: 1, withInvited: true}))
		if got := r.verdict(c.of.cred); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		if r.has(c.of.id) != (c.by.id == c.of.id) {
			t.Errorf("%s: want a refusal before the credential is shown only for a peer that revoked itself, got %t", name, r.has(c.of.id))
		}
	}
}

// TestRenewalChangesNoRights checks that an inviter that renews a credential cannot revoke its holder, and that the one
// that let the holder in still can.
func TestRenewalChangesNoRights(t *testing.T) {
	cluster := key(t)
	first, other := guest(t, root(cluster), AllRoles), guest(t, root(cluster), AllRoles)
	g := guest(t, first.authority(cluster), RoleWorker)
	for name, by := range map[string]authority{"another inviter": other.authority(cluster), "its own": first.authority(cluster), "the key": root(cluster)} {
		c, err := by.renew(g.cred, g.cred.lineage(0), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		c, err = ParseCredential(c.encode())
		if err != nil || !slices.Equal(c.lineage(0), []peer.ID{first.id}) {
			t.Fatalf("%s: let in by %v, %v, want the first inviter", name, c.lineage(0), err)
		}
		r := openList(t, cluster, disk{})
		mustMerge(t, r, newRevocation(t, other.authority(cluster), word{peer: g.id, number: 1}))
		if r.verdict(c) != valid {
			t.Errorf("%s: the other inviter revoked a guest of the first one, want r.verdict(c) = %v", name, valid)
		}
		mustMerge(t, r, newRevocation(t, first.authority(cluster), word{peer: g.id, number: 1}))
		if r.verdict(c) != out {
			t.Errorf("%s: a renewal made the revocation of a guest by its inviter void, want r.verdict(c) = %v", name, out)
		}
	}
	// A peer that the cluster key let in still counts as such when a member renews it.
	c, err := other.authority(cluster).renew(first.cred, nil, time.Now().Add(time.Hour))
	if err != nil || len(c.lineage(0)) != 0 {
		t.Fatalf("let in by %v, %v, want the cluster key", c.lineage(0), err)
	}
	me := newOwnMembership(first.identity, "", time.Hour, disk{})
	m := &membership{cluster: c.cluster, own: first.cred}
	if _, err := me.renewed(&wirepb.JoinReply{Credential: c.toWire()}, m); err != nil {
		t.Errorf("an honest renewal: got %v, want no error", err)
	}
	grab, err := other.authority(cluster).issue(first.id, AllRoles, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := me.renewed(&wirepb.JoinReply{Credential: grab.toWire()}, m); !errors.Is(err, ErrBadCredential) {
		t.Errorf("a renewal in which a member claims to have let us in: got %v, want ErrBadCredential", err)
	}
}

// TestRenewalNeedsProofOfOrigin has an inviter sign a renewal that hides that this inviter let the holder in. Nobody
// else renews that credential. A holder that proves which peer let it in is renewed, after any number of renewals.
func TestRenewalNeedsProofOfOrigin(t *testing.T) {
	h, cluster := bare(t)
	bad, other := guest(t, root(cluster), AllRoles), guest(t, root(cluster), AllRoles)
	g := guest(t, bad.authority(cluster), RoleWorker)
	id := g.cred.cluster
	hidden, err := bad.authority(cluster).renew(g.cred, nil, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	moved, err := other.authority(cluster).renew(g.cred, g.cred.lineage(0), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		show, origin *Credential
		want         error
	}{
		"a direct one":                 {g.cred, nil, nil},
		"a renewal with its origin":    {moved, g.cred, nil},
		"a renewal alone":              {moved, nil, ErrBadCredential},
		"one that hides its origin":    {hidden, nil, ErrBadCredential},
		"the same twice":               {hidden, hidden, ErrBadCredential},
		"with the origin of another":   {hidden, other.cred, ErrBadCredential},
		"hidden, with its true origin": {hidden, g.cred, nil},
	} {
		q := &wirepb.JoinRequest{Cluster: id[:], Credential: c.show.toWire()}
		if c.origin != nil {
			q.Origin = c.origin.toWire()
		}
		got, err := h.issuer.grant(g.id, q, time.Now())
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if err == nil && !slices.Equal(got.lineage(0), []peer.ID{bad.id}) {
			t.Errorf("%s: let in by %v, want the hidden inviter", name, got.lineage(0))
		}
	}
}

func TestRevocationWithInvitedEndsAllBelow(t *testing.T) {
	cluster := key(t)
	r := openList(t, cluster, disk{})
	bad, good := guest(t, root(cluster), AllRoles), guest(t, root(cluster), AllRoles)
	g := guest(t, bad.authority(cluster), AllRoles)
	below := guest(t, g.authority(cluster), RoleWorker)
	moved, err := good.authority(cluster).renew(g.cred, g.cred.lineage(0), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	anew, err := good.authority(cluster).issue(g.id, RoleWorker, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	want := func(name string, by, underneath, away, again verdict) {
		t.Helper()
		got := []verdict{r.verdict(g.cred), r.verdict(below.cred), r.verdict(moved), r.verdict(anew)}
		if !slices.Equal(got, []verdict{by, underneath, away, again}) {
			t.Errorf("%s: got %v, want %v", name, got, []verdict{by, underneath, away, again})
		}
	}
	want("before", valid, valid, valid, valid)
	mustMerge(t, r, newRevocation(t, root(cluster), word{peer: bad.id}))
	want("revoked alone", tainted, tainted, valid, valid)
	mustMerge(t, r, newRevocation(t, root(cluster), word{peer: bad.id, number: 1, withInvited: true}))
	want("revoked with its guests", out, out, out, valid)
	mustMerge(t, r, newRevocation(t, root(cluster), word{peer: bad.id, number: 2, back: true}))
	want("let back in", valid, valid, valid, valid)
}

func TestNewestRevocationOrUndoingHolds(t *testing.T) {
	cluster := key(t)
	r := openList(t, cluster, disk{})
	by := guest(t, root(cluster), AllRoles)
	g := guest(t, by.authority(cluster), RoleWorker)
	words := []revocation{
		newRevocation(t, by.authority(cluster), word{peer: g.id, number: 1}),
		newRevocation(t, by.authority(cluster), word{peer: g.id, number: 2, back: true}),
		newRevocation(t, by.authority(cluster), word{peer: g.id, number: 3}),
	}
	for i, want := range []verdict{out, valid, out} {
		mustMerge(t, r, words[i])
		if got := r.verdict(g.cred); got != want {
			t.Errorf("after revocation or pardon %d: got %v, want %v", i, got, want)
		}
	}
	mustMerge(t, r, words[1], words[0]) // replayed
	if r.verdict(g.cred) != out {
		t.Error("an older revocation displaced the newest one")
	}
	mustMerge(t, r, newRevocation(t, by.authority(cluster), word{peer: g.id, number: 3, back: true}))
	if r.verdict(g.cred) != out {
		t.Error("of a revocation and a pardon with one number the pardon holds, want the revocation")
	}
	mustMerge(t, r, newRevocation(t, root(cluster), word{peer: g.id, number: 1, back: true}))
	if r.verdict(g.cred) != valid {
		t.Error("the cluster key did not annul a member's revocation")
	}
	mustMerge(t, r, newRevocation(t, by.authority(cluster), word{peer: g.id, number: maxNumber}))
	if r.verdict(g.cred) != valid {
		t.Error("a member overruled the cluster key")
	}
	mustMerge(t, r, newRevocation(t, root(cluster), word{peer: g.id, number: 2}))
	if r.verdict(g.cred) != out || !r.has(g.id) {
		t.Error("the cluster key did not revoke")
	}
}

// TestFloodOfRevocationsDisplacesNoOthers has an inviter sign many revocations, as itself and as peers that it made up.
// They displace none of others.
func TestFloodOfRevocationsDisplacesNoOthers(t *testing.T) {
	cluster := key(t)
	r := openList(t, cluster, disk{})
	above := guest(t, root(cluster), AllRoles)
	bad := guest(t, above.authority(cluster), AllRoles)
	var flood []revocation
	for range 2 * maxBySigner {
		flood = append(flood, newRevocation(t, bad.authority(cluster), word{peer: newActor(t).id, number: 1}))
	}
	for range 16 {
		puppet := guest(t, bad.authority(cluster), RoleInviter)
		for range maxBySigner / 2 {
			flood = append(flood, newRevocation(t, puppet.authority(cluster), word{peer: newActor(t).id, number: 1}))
		}
	}
	mustMerge(t, r, flood...)
	if n := len(r.list); n != maxByBranch {
		t.Errorf("got %d entries of one branch, want %d", n, maxByBranch)
	}
	victim := guest(t, above.authority(cluster), RoleWorker)
	mustMerge(t, r, newRevocation(t, above.authority(cluster), word{peer: bad.id, number: 1}), newRevocation(t, above.authority(cluster), word{peer: victim.id, number: 1}))
	if r.verdict(bad.cred) != out || r.verdict(victim.cred) != out {
		t.Error("the flood displaced the revocation by the inviter that let the flooder in")
	}
	other := guest(t, root(cluster), AllRoles)
	hers := guest(t, other.authority(cluster), RoleWorker)
	mustMerge(t, r, newRevocation(t, other.authority(cluster), word{peer: hers.id, number: 1}))
	if r.verdict(hers.cred) != out {
		t.Error("the flood displaced another inviter's revocation")
	}
}

func TestRevocationsByTheClusterKeyAlwaysFit(t *testing.T) {
	cluster := key(t)
	list := map[slot]revocation{}
	for f := range 20 { // more families than fit, without the cost of signatures
		for s := range 8 {
			for p := range maxBySigner {
				put(list, placed(revocation{word: word{peer: made("p", f, s, p)}, signer: made("s", f, s, 0), above: []peer.ID{made("f", f, 0, 0)}}))
			}
		}
	}
	for p := range maxByKey {
		put(list, placed(revocation{word: word{peer: made("k", p, 0, 0)}}))
	}
	kept := trimmed(list)
	byKey := 0
	for s := range kept {
		if s.signer == "" {
			byKey++
		}
	}
	if byKey != maxByKey || len(kept) != maxByKey+maxByMembers {
		t.Errorf("got %d entries, want %d, and %d by the cluster key, want %d", len(kept), maxByKey+maxByMembers, byKey, maxByKey)
	}
	r := openList(t, cluster, disk{})
	r.setLocked(kept, nil)
	if got := wires(kept, nil); len(got) != len(kept) {
		t.Errorf("got %d entries to send, want %v", len(got), len(kept))
	}
}

func made(kind string, a, b, c int) peer.ID {
	return peer.ID(fmt.Sprintf("%s-%04d-%04d-%04d", kind, a, b, c))
}

// TestRevocationListDoesNotDependOnTheOrder merges the same entries in any order and in any portions, with restarts,
// into several lists. In the end all lists are equal.
func TestRevocationListDoesNotDependOnTheOrder(t *testing.T) {
	cluster := key(t)
	a, b := guest(t, root(cluster), AllRoles), guest(t, root(cluster), AllRoles)
	a2 := guest(t, a.authority(cluster), AllRoles)
	a2b, err := b.authority(cluster).renew(a2.cred, a2.cred.lineage(0), time.Now().Add(time.Hour)) // the same daemon under another chain
	if err != nil {
		t.Fatal(err)
	}
	signers := []authority{root(cluster), a.authority(cluster), b.authority(cluster), a2.authority(cluster), actor{a2.identity, a2b}.authority(cluster)}
	peers := []actor{a, b, a2, guest(t, a2.authority(cluster), RoleWorker), guest(t, b.authority(cluster), RoleWorker)}
	var pool []revocation
	for _, s := range signers {
		for _, p := range peers {
			for n := range uint32(3) {
				pool = append(pool, newRevocation(t, s, word{peer: p.id, number: n + 1, back: n == 1, withInvited: n == 2}))
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		entries := rapid.SliceOfNDistinct(rapid.IntRange(0, len(pool)-1), 1, 12, rapid.ID[int]).Draw(rt, "entries")
		var digest []byte
		var worth []verdict
		for i := range 3 {
			r := openList(t, cluster, disk{})
			rest := rapid.Permutation(entries).Draw(rt, fmt.Sprintf("order %d", i))
			for len(rest) > 0 {
				n := rapid.IntRange(1, len(rest)).Draw(rt, "portion")
				var w []*wirepb.Revocation
				for _, e := range rest[:n] {
					w = append(w, pool[e].wire)
				}
				if _, err := r.merge(w); err != nil {
					rt.Fatal(err)
				}
				rest = rest[n:]
			}
			var got []verdict
			for _, p := range peers {
				got = append(got, r.verdict(p.cred))
			}
			if digest == nil {
				digest, worth = r.digest(), got
			}
			if !bytes.Equal(digest, r.digest()) || !slices.Equal(worth, got) {
				rt.Fatalf("the digest or the verdicts differ with the order: got verdicts %v, want %v", got, worth)
			}
			again := openList(t, cluster, disk{})
			if _, err := again.merge(r.all()); err != nil || !bytes.Equal(again.digest(), digest) {
				rt.Fatalf("the list that was sent differs from the list itself: got %v, want again.digest() = %q", err, digest)
			}
		}
	})
}

// TestFullRevocationListDoesNotDependOnTheOrder checks the same for lists that overflow.
func TestFullRevocationListDoesNotDependOnTheOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var pool []revocation
		w := &wirepb.Revocation{}
		for f := range 2 {
			for s := range 4 {
				for p := range rapid.IntRange(0, 2*maxBySigner).Draw(rt, "of a signer") {
					one := revocation{word: word{peer: made("p", f, s, p)}, signer: made("s", f, s, 0), wire: w}
					for g := range s {
						one.above = append(one.above, made("g", f, g, 0))
					}
					pool = append(pool, placed(one))
				}
			}
		}
		var want map[slot]revocation
		for i := range 3 {
			list := map[slot]revocation{}
			rest := slices.Clone(pool)
			seed := rapid.Uint64().Draw(rt, fmt.Sprintf("seed %d", i))
			shuffle(rest, seed)
			for len(rest) > 0 {
				n := min(len(rest), 1+int(seed%300))
				for _, r := range rest[:n] {
					put(list, r)
				}
				list = trimmed(list)
				rest = rest[n:]
			}
			if want == nil {
				want = list
			}
			if len(want) != len(list) {
				rt.Fatalf("got %d entries in another order, want %d", len(list), len(want))
			}
			for s := range want {
				if _, ok := list[s]; !ok {
					rt.Fatalf("%v is kept in one order only, want both", s)
				}
			}
		}
	})
}

func shuffle(list []revocation, seed uint64) {
	for i := len(list) - 1; i > 0; i-- {
		seed = seed*6364136223846793005 + 1442695040888963407
		j := int(seed>>33) % (i + 1)
		list[i], list[j] = list[j], list[i]
	}
}

// TestRevocationListOfTheVersionBeforeStaysInForce opens a list that the version before wrote. What members said there
// stays in force here but is not passed on; what the cluster key said is passed on.
func TestRevocationListOfTheVersionBeforeStaysInForce(t *testing.T) {
	cluster := key(t)
	pub := cluster.Public().(ed25519.PublicKey)
	id := clusterOf(pub)
	member := guest(t, root(cluster), AllRoles)
	one, two := guest(t, root(cluster), RoleWorker), guest(t, root(cluster), RoleWorker)
	old := func(by ed25519.PrivateKey, issuer *Credential, p peer.ID) *wirepb.Revocation {
		body, err := proto.Marshal(&wirepb.RevocationBody{Cluster: id[:], Peer: []byte(p), Reason: "old", At: 1e9})
		if err != nil {
			t.Fatal(err)
		}
		w := &wirepb.Revocation{Body: body, Signature: ed25519.Sign(by, append([]byte("muster revocation 1\n"), body...))}
		if issuer != nil {
			w.Issuer = issuer.toWire()
		}
		return w
	}
	byKey, byMember := old(cluster, nil, one.id), old(member.key, member.cred, two.id)
	d := disk{t.TempDir()}
	b, err := proto.Marshal(&wirepb.RevocationList{Entries: []*wirepb.Revocation{byKey, byMember}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.write(revokedFile, b); err != nil {
		t.Fatal(err)
	}
	r := openList(t, cluster, d)
	if !r.has(one.id) || !r.has(two.id) || len(r.all()) != 1 {
		t.Errorf("revoked: got %t and %t, with %d to pass on, want true, true and 1", r.has(one.id), r.has(two.id), len(r.all()))
	}
	mustMerge(t, r, newRevocation(t, root(cluster), word{peer: two.id, number: 1, back: true}))
	if again := openList(t, cluster, d); !again.has(one.id) || again.has(two.id) {
		t.Error("the cluster key did not annul an entry of the version before")
	}
	fresh := openList(t, cluster, disk{})
	if got, err := fresh.merge([]*wirepb.Revocation{byKey, byMember}); err != nil || len(got) != 1 || fresh.has(two.id) {
		t.Errorf("from a daemon of the version before: got %d entries, %v, want only that of the cluster key", len(got), err)
	}
	if plain := newRevocation(t, root(cluster), word{peer: one.id}); plain.wire.GetForm() != formFirst {
		t.Error("a plain revocation by the cluster key is not in the form that older daemons understand")
	}
}

func FuzzRevocation(f *testing.F) {
	cluster := key(f)
	line := generations(f, cluster, 2)
	for _, r := range []revocation{
		newRevocation(f, root(cluster), word{peer: newActor(f).id, reason: "why"}),
		newRevocation(f, root(cluster), word{peer: newActor(f).id, number: 7, back: true}),
		newRevocation(f, line[1].authority(cluster), word{peer: newActor(f).id, number: 2, withInvited: true}),
	} {
		b, err := proto.Marshal(&wirepb.RevocationList{Entries: []*wirepb.Revocation{r.wire}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var list wirepb.RevocationList
		if proto.Unmarshal(b, &list) != nil {
			return
		}
		for _, e := range list.GetEntries() {
			r, err := revocationFromWire(e, line[0].cred.cluster, line[0].cred.key)
			if (err == nil) == (r.peer == "") || err == nil && r.signer != "" && r.number > maxNumber {
				t.Fatalf("got %v, %v, want a peer and a number in bounds if there is no error", r, err)
			}
		}
		l := openList(t, cluster, disk{})
		if _, err := l.merge(list.GetEntries()); err == nil {
			l.verdict(line[1].cred)
			l.digest()
		}
	})
}

func TestMembershipKeepsItsOrigin(t *testing.T) {
	cluster := key(t)
	by, other := guest(t, root(cluster), AllRoles), guest(t, root(cluster), AllRoles)
	g := guest(t, by.authority(cluster), AllRoles)
	m := membership{cluster: g.cred.cluster, key: g.cred.key}.with(g.cred)
	moved, err := other.authority(cluster).renew(g.cred, g.cred.lineage(0), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	d := disk{t.TempDir()}
	if err := saveMembership(d, m.with(moved)); err != nil {
		t.Fatal(err)
	}
	again, err := loadMembership(d, g.identity)
	if err != nil || !bytes.Equal(again.own.encode(), moved.encode()) || !bytes.Equal(again.origin.encode(), g.cred.encode()) {
		t.Fatalf("membership from disk: got %+v, %v, want the same credential and origin", again, err)
	}
	if back := again.with(g.cred); back.origin != back.own {
		t.Errorf("a direct credential is not its own origin: got %v, want %v", back.origin, back.own)
	}
	if err := saveMembership(d, m); err != nil {
		t.Fatal(err)
	}
	if again, err = loadMembership(d, g.identity); err != nil || again.origin != again.own {
		t.Errorf("a file without an origin, as of the version before: got %v, want that the credential is its own origin", err)
	}
}
