package p2p

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

// grantOf returns a grant for an actor, signed by the cluster key or under another grant.
func grantOf(t testing.TB, by authority, a actor) *Credential {
	t.Helper()
	body := &wirepb.LinkBody{Peer: []byte(a.id), Roles: uint32(AllRoles), Grant: true}
	g, err := by.sign(body, time.Now().Add(grantLife))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// inviterWithGrant returns a new inviter with a grant of an authority as its credential.
func inviterWithGrant(t testing.TB, by authority) actor {
	t.Helper()
	a := newActor(t)
	a.cred = grantOf(t, by, a)
	return a
}

func newEndorsement(t testing.TB, cluster ed25519.PrivateKey, by, of actor, d time.Duration) *Credential {
	t.Helper()
	c, err := by.authority(cluster).endorse(of.cred, time.Now().Add(d))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// forgeEndorsement signs an endorsement as a thief would, with any key, under any chain, for any grant.
func forgeEndorsement(t testing.TB, by ed25519.PrivateKey, chain, of *Credential, change func(*wirepb.EndorsementBody)) *wirepb.Credential {
	t.Helper()
	links := of.granted()
	if links == nil {
		links = of.links
	}
	b := &wirepb.EndorsementBody{Cluster: of.cluster[:], Grant: printOfGrant(links), NotAfter: time.Now().Add(time.Hour).Unix()}
	if change != nil {
		change(b)
	}
	body, err := proto.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	w := of.bare().toWire()
	w.Endorsement = &wirepb.Endorsement{Body: body, Signature: ed25519.Sign(by, append([]byte(signEndorsement), body...))}
	if chain != nil {
		w.Endorsement.Links = chain.bare().toWire().GetLinks()
	}
	return w
}

// TestOneStolenKeyEndorsesNobody has a thief sign all that the key of one retired inviter can sign. Nothing of that makes a
// valid inviter of the thief, or of a peer that it lets in.
func TestOneStolenKeyEndorsesNobody(t *testing.T) {
	cluster := key(t)
	a, b := inviterWithGrant(t, root(cluster)), inviterWithGrant(t, root(cluster))
	one, two := inviterWithGrant(t, a.authority(cluster)), inviterWithGrant(t, a.authority(cluster))
	below := inviterWithGrant(t, one.authority(cluster))
	hidden := newActor(t) // its grant says that the cluster key let it in
	body := &wirepb.LinkBody{Peer: []byte(hidden.id), Roles: uint32(AllRoles), Grant: true, LetInBy: letInByToWire(nil)}
	var err error
	if hidden.cred, err = a.authority(cluster).sign(body, time.Now().Add(grantLife)); err != nil {
		t.Fatal(err)
	}
	if _, err := credentialFromWire(forgeEndorsement(t, b.key, b.cred, a.cred, nil)); err != nil {
		t.Fatalf("an honest endorsement: %v", err)
	}
	old := newEndorsement(t, cluster, b, a, -time.Hour)
	again := forgeEndorsement(t, b.key, b.cred, one.cred, nil) // the endorsement of another grant
	again.Endorsement = old.endorsement.wire
	for name, w := range map[string]*wirepb.Credential{
		"itself":                            forgeEndorsement(t, a.key, a.cred, a.cred, nil),
		"by its guest":                      forgeEndorsement(t, one.key, one.cred, a.cred, nil),
		"by its guest's guest":              forgeEndorsement(t, below.key, below.cred, a.cred, nil),
		"its guest":                         forgeEndorsement(t, a.key, a.cred, one.cred, nil),
		"one guest by another":              forgeEndorsement(t, two.key, two.cred, one.cred, nil),
		"a guest's guest by another":        forgeEndorsement(t, two.key, two.cred, below.cred, nil),
		"by one whose origin it hides":      forgeEndorsement(t, hidden.key, hidden.cred, one.cred, nil),
		"one whose origin it hides":         forgeEndorsement(t, two.key, two.cred, hidden.cred, nil),
		"in another's name":                 forgeEndorsement(t, a.key, b.cred, a.cred, nil),
		"in the name of the key":            forgeEndorsement(t, a.key, nil, a.cred, nil),
		"an old one for another grant":      again,
		"under a chain that it made itself": forgeEndorsement(t, a.key, generations(t, key(t), 1)[0].cred, one.cred, nil),
	} {
		if c, err := credentialFromWire(w); !errors.Is(err, ErrBadCredential) {
			t.Errorf("%s: got %+v, %v, want ErrBadCredential", name, c, err)
		}
	}
	h, _ := bareOf(t, cluster)
	for name, c := range map[string]*Credential{"a grant alone": a.cred, "a grant of its own": one.cred, "the old endorsement": old} {
		if _, err := h.admission.check(c.id, c.toWire(), time.Now()); !errors.Is(err, ErrExpired) {
			t.Errorf("%s: got %v, want ErrExpired", name, err)
		}
	}
	// Nor is a peer that it lets in a member.
	for name, chain := range map[string]*Credential{"the old endorsement": old, "the grant": a.cred} {
		long := *chain
		long.NotAfter = time.Now().Add(time.Hour)
		w := newActor(t)
		c, err := authority{key: a.key, cluster: chain.key, chain: &long}.issue(w.id, RoleWorker, long.NotAfter)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.admission.check(w.id, c.toWire(), time.Now()); !errors.Is(err, ErrExpired) {
			t.Errorf("a peer that it lets in under %s: got %v, want ErrExpired", name, err)
		}
	}
	// No honest inviter endorses it, because its credential has expired.
	id := a.cred.cluster
	q := &wirepb.JoinRequest{Cluster: id[:], Credential: old.toWire(), Grants: []*wirepb.Credential{a.cred.toWire()}, Endorsed: true}
	if _, err := h.issuer.decide(a.id, q, time.Now()); !errors.Is(err, ErrExpired) {
		t.Errorf("an honest inviter: got %v, want ErrExpired", err)
	}
}

// bareOf is like bare, for a given cluster: a host without a network and without the cluster key, with a grant.
func bareOf(t testing.TB, cluster ed25519.PrivateKey) (*Host, actor) {
	t.Helper()
	h, _ := bare(t)
	me := actor{identity: h.own.identity}
	c, err := root(cluster).issue(me.id, AllRoles, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	me.cred = grantOf(t, root(cluster), me)
	m := (&membership{cluster: c.cluster, key: c.key}).with(c).withGrant(me.cred)
	if err := h.settle(m); err != nil {
		t.Fatal(err)
	}
	return h, me
}

// TestMalformedEndorsementsAreRefused parses endorsements that no honest inviter would sign.
func TestMalformedEndorsementsAreRefused(t *testing.T) {
	cluster, other := key(t), key(t)
	a, b := inviterWithGrant(t, root(cluster)), inviterWithGrant(t, root(cluster))
	alien := inviterWithGrant(t, root(other))
	short := generations(t, cluster, 2)
	overShort := &wirepb.LinkBody{Peer: []byte(newActor(t).id), Roles: uint32(AllRoles), Grant: true}
	forged, err := proto.Marshal(&wirepb.LinkBody{Peer: []byte(b.id), Roles: uint32(AllRoles), Grant: true, NotAfter: maxNotAfter, Cluster: a.cred.cluster[:]})
	if err != nil {
		t.Fatal(err)
	}
	bySelf := &Credential{links: []link{{wire: &wirepb.Link{Body: forged, Signature: ed25519.Sign(b.key, append([]byte(signCredential), forged...))}}}, key: a.cred.key}
	long := forgeEndorsement(t, b.key, b.cred, a.cred, nil)
	for len(long.Endorsement.Links) <= MaxChain {
		long.Endorsement.Links = append(long.Endorsement.Links, long.Endorsement.Links[0])
	}
	large := forgeEndorsement(t, b.key, b.cred, a.cred, nil)
	large.Endorsement.Body = append(large.Endorsement.Body, bytes.Repeat([]byte{0x7a, 1, 0}, maxEndorsement/3)...)
	for name, w := range map[string]*wirepb.Credential{
		"nothing":                  {ClusterKey: a.cred.key, Links: a.cred.toWire().GetLinks(), Endorsement: &wirepb.Endorsement{}},
		"of another cluster":       forgeEndorsement(t, alien.key, alien.cred, a.cred, nil),
		"for another cluster":      forgeEndorsement(t, b.key, b.cred, a.cred, func(b *wirepb.EndorsementBody) { b.Cluster = alien.cred.cluster[:] }),
		"for another grant":        forgeEndorsement(t, b.key, b.cred, a.cred, func(x *wirepb.EndorsementBody) { x.Grant = printOfGrant(b.cred.links) }),
		"no time":                  forgeEndorsement(t, b.key, b.cred, a.cred, func(b *wirepb.EndorsementBody) { b.NotAfter = 0 }),
		"a time beyond time":       forgeEndorsement(t, b.key, b.cred, a.cred, func(b *wirepb.EndorsementBody) { b.NotAfter = 1 << 62 }),
		"by one without a grant":   forgeEndorsement(t, short[0].key, short[0].cred, a.cred, nil),
		"by a grant that b signed": forgeEndorsement(t, b.key, bySelf, a.cred, nil),
		"where no grant is":        forgeEndorsement(t, b.key, b.cred, short[1].cred, nil),
		"too many links":           long,
		"too large":                large,
	} {
		if c, err := credentialFromWire(w); !errors.Is(err, ErrBadCredential) {
			t.Errorf("%s: got %+v, %v, want ErrBadCredential", name, c, err)
		}
	}
	if _, err := short[1].authority(cluster).sign(overShort, time.Now().Add(time.Hour)); !errors.Is(err, ErrBadCredential) {
		t.Errorf("a grant below a link of no inviter: got %v, want ErrBadCredential", err)
	}
	overShort.Roles, overShort.LetInBy = uint32(RoleWorker), nil
	if _, err := a.authority(cluster).sign(overShort, time.Now().Add(time.Hour)); !errors.Is(err, ErrBadCredential) {
		t.Errorf("a grant for a worker: got %v, want ErrBadCredential", err)
	}
}

// TestCredentialsEndWithTheirEndorsement checks that an inviter and those that it let in have valid credentials for as
// long as its endorsement lasts. The loss of the inviter that let it in changes nothing.
func TestCredentialsEndWithTheirEndorsement(t *testing.T) {
	cluster := key(t)
	h, _ := bareOf(t, cluster)
	a, b := inviterWithGrant(t, root(cluster)), inviterWithGrant(t, root(cluster))
	c := inviterWithGrant(t, a.authority(cluster)) // a is lost: nobody endorses it
	c.cred = newEndorsement(t, cluster, b, c, 28*24*time.Hour)
	w := guest(t, c.authority(cluster), RoleWorker)
	now := time.Now() // later than all of them, so that none lasts longer than its time from here
	for _, x := range []struct {
		who   actor
		after time.Duration
		want  error
	}{
		{c, 0, nil},
		{w, 0, nil},
		{c, 27 * 24 * time.Hour, nil},
		{c, 29 * 24 * time.Hour, ErrExpired},
		{w, 59 * time.Minute, nil},
		{w, time.Hour, ErrExpired},
		{c, -10 * time.Minute, nil}, // a slow clock
	} {
		if _, err := h.admission.check(x.who.id, x.who.cred.toWire(), now.Add(x.after)); !errors.Is(err, x.want) {
			t.Errorf("%s after %s: got %v, want %v", x.who.cred.Roles, x.after, err, x.want)
		}
	}
	if !w.cred.InvitersEnd().Equal(c.cred.NotAfter) || !c.cred.InvitersEnd().Equal(c.cred.NotAfter) {
		t.Errorf("the inviters end at %s, want %s", w.cred.InvitersEnd(), c.cred.NotAfter)
	}
	late, err := c.authority(cluster).issue(newActor(t).id, RoleWorker, now.Add(365*24*time.Hour))
	if err != nil || !late.NotAfter.Equal(c.cred.NotAfter) {
		t.Errorf("got a guest until %s, want the end of its inviter, %s; %v", late.NotAfter, c.cred.NotAfter, err)
	}
}

// TestEndorsementOfARevokedInviterIsTainted revokes the inviter that signed an endorsement, and the one that let that
// inviter in.
func TestEndorsementOfARevokedInviterIsTainted(t *testing.T) {
	cluster := key(t)
	a, b := inviterWithGrant(t, root(cluster)), inviterWithGrant(t, root(cluster))
	c := inviterWithGrant(t, b.authority(cluster))
	byB, byC := newEndorsement(t, cluster, b, a, time.Hour), newEndorsement(t, cluster, c, a, time.Hour)
	w := guest(t, actor{a.identity, byC}.authority(cluster), RoleWorker)
	for name, x := range map[string]struct {
		say        word
		b, c, of   verdict
		endorsesMe bool
	}{
		"nobody":                  {word{peer: newActor(t).id}, valid, valid, valid, true},
		"who signed":              {word{peer: c.id}, valid, tainted, tainted, true},
		"who let that one in":     {word{peer: b.id}, tainted, tainted, tainted, true},
		"the same, with all":      {word{peer: b.id, withInvited: true}, tainted, tainted, tainted, true},
		"the endorsed one itself": {word{peer: a.id}, out, out, tainted, false},
	} {
		r := openList(t, cluster, disk{})
		mustMerge(t, r, newRevocation(t, root(cluster), x.say))
		if r.verdict(byB) != x.b || r.verdict(byC) != x.c || r.verdict(w.cred) != x.of {
			t.Errorf("%s: got verdicts %v, %v, %v, want r.verdict(byB) = %v, r.verdict(byC) = %v and r.verdict(w.cred) = %v", name, r.verdict(byB), r.verdict(byC), r.verdict(w.cred), x.b, x.c, x.of)
		}
	}
	r := openList(t, cluster, disk{})
	mustMerge(t, r, newRevocation(t, b.authority(cluster), word{peer: c.id, number: 1}))
	if r.verdict(byC) != tainted {
		t.Error("the endorsement by an inviter that was revoked by its own inviter is valid, want tainted")
	}
	mustMerge(t, r, newRevocation(t, c.authority(cluster), word{peer: a.id, number: 1, withInvited: true}))
	if r.verdict(byB) != valid {
		t.Error("an inviter was revoked by one that endorses it, want that this has no effect")
	}
}

// TestInviterEndorsesHonestGrantsOnly asks an honest inviter. It endorses grants that give the same roles as the present
// credential and name the peer that let the holder in. For others it signs as for a guest.
func TestInviterEndorsesHonestGrantsOnly(t *testing.T) {
	cluster := key(t)
	h, me := bareOf(t, cluster)
	a := guest(t, root(cluster), AllRoles)
	good := grantOf(t, root(cluster), a)
	b := guest(t, root(cluster), AllRoles)
	byB := inviterWithGrant(t, root(cluster))
	hides := &wirepb.LinkBody{Peer: []byte(a.id), Roles: uint32(AllRoles), Grant: true}
	lied, err := byB.authority(cluster).sign(hides, time.Now().Add(time.Hour)) // says that b let a in
	if err != nil {
		t.Fatal(err)
	}
	mine := grantOf(t, me.authority(cluster), a)
	id := a.cred.cluster
	ask := func(show actor, grants ...*Credential) (*signed, error) {
		q := &wirepb.JoinRequest{Cluster: id[:], Credential: show.cred.toWire(), Endorsed: true}
		for _, g := range grants {
			q.Grants = append(q.Grants, g.toWire())
		}
		return h.issuer.decide(show.id, q, time.Now())
	}
	weak := actor{a.identity, nil}
	if weak.cred, err = root(cluster).issue(a.id, RoleWorker|RoleInviter, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		show     actor
		grants   []*Credential
		endorses bool
	}{
		"a good grant":             {a, []*Credential{good}, true},
		"none":                     {a, nil, false},
		"of another":               {b, []*Credential{good}, false},
		"one that lies":            {a, []*Credential{lied}, false},
		"one that it signed":       {a, []*Credential{mine}, false},
		"a bad one and a good one": {a, []*Credential{lied, mine, good}, true},
		"with more roles":          {weak, []*Credential{good}, false},
	} {
		s, err := ask(x.show, x.grants...)
		if err != nil || (s.own.endorsement != nil) != x.endorses || s.grant == nil {
			t.Errorf("%s: got %+v, %v, want a grant, and an endorsement: %v", name, s, err, x.endorses)
		}
	}
	if _, err := ask(a, good, good, good, good); !errors.Is(err, ErrBadCredential) {
		t.Errorf("more grants than allowed: got %v, want ErrBadCredential", err)
	}
	mustMerge(t, h.revoked, newRevocation(t, root(cluster), word{peer: byB.id}))
	through, err := byB.authority(cluster).grant(a.cred, nil, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := ask(a, through); err != nil || s.own.endorsement != nil {
		t.Errorf("a grant signed by a revoked peer: got %+v, %v, want no endorsement", s, err)
	}

	// A daemon of the version before would lose the endorsement.
	now := h.own.load()
	c, err := b.endorseBy(t, cluster, me.cred)
	if err != nil {
		t.Fatal(err)
	}
	h.own.current.Store(now.with(c))
	g := guest(t, root(cluster), RoleWorker)
	q := &wirepb.JoinRequest{Cluster: id[:], Credential: g.cred.toWire()}
	if _, err := h.issuer.decide(g.id, q, time.Now()); !errors.Is(err, ErrNotInviter) {
		t.Errorf("a daemon of the version before: got %v, want ErrNotInviter", err)
	}
	q.Endorsed = true
	if s, err := h.issuer.decide(g.id, q, time.Now()); err != nil || s.own.endorsement == nil || s.grant != nil {
		t.Errorf("a worker: got %+v, %v, want an endorsement without a grant", s, err)
	}
}

func (a actor) endorseBy(t *testing.T, cluster ed25519.PrivateKey, of *Credential) (*Credential, error) {
	t.Helper()
	by := actor{a.identity, grantOf(t, root(cluster), a)}
	return by.authority(cluster).endorse(of, time.Now().Add(time.Hour))
}

// TestGrantsOfSeveralFamiliesAreKept offers an inviter more grants than it keeps. Most are by inviters of one family.
func TestGrantsOfSeveralFamiliesAreKept(t *testing.T) {
	cluster := key(t)
	a, b := inviterWithGrant(t, root(cluster)), inviterWithGrant(t, root(cluster))
	me := newActor(t)
	m := &membership{}
	for range 2 * maxGrants {
		m = m.withGrant(grantOf(t, inviterWithGrant(t, a.authority(cluster)).authority(cluster), me))
	}
	if len(m.grants) != maxGrants || firm(m.grants) {
		t.Errorf("got %d grants, firm: %t, want the most that are kept, not firm", len(m.grants), firm(m.grants))
	}
	m = m.withGrant(grantOf(t, inviterWithGrant(t, b.authority(cluster)).authority(cluster), me))
	if !firm(m.grants) || len(m.grants) != maxGrants {
		t.Error("the grant of another family is not kept")
	}
	for range 2 * maxGrants {
		m = m.withGrant(grantOf(t, inviterWithGrant(t, a.authority(cluster)).authority(cluster), me))
	}
	if !firm(m.grants) || len(m.grants) != maxGrants {
		t.Error("others displaced the grant that makes them firm")
	}
	r := openList(t, cluster, disk{})
	mustMerge(t, r, newRevocation(t, root(cluster), word{peer: b.id}))
	end := time.Now().Add(time.Hour)
	if left := m.without(r, end); len(left.grants) != len(m.grants)-1 || len(m.grants) != maxGrants {
		t.Errorf("got %d of %d grants without those of a revoked peer, want one fewer", len(left.grants), len(m.grants))
	}
	if left := m.without(r, end.Add(grantLife)); len(left.grants) != 0 {
		t.Errorf("got %d expired grants, want 0", len(left.grants))
	}
	if m = m.withGrant(grantOf(t, root(cluster), me)); len(m.grants[0].links) != 1 {
		t.Error("the grant of the cluster key is not the first")
	}
	m.own, m.cluster, m.key = guest(t, root(cluster), AllRoles).cred, a.cred.cluster, a.cred.key
	c, err := root(cluster).issue(me.id, AllRoles, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	m = m.with(c)
	d := disk{t.TempDir()}
	if err := saveMembership(d, m); err != nil {
		t.Fatal(err)
	}
	again, err := loadMembership(d, me.identity)
	if err != nil || len(again.grants) != len(m.grants) || !bytes.Equal(again.grants[0].encode(), m.grants[0].encode()) {
		t.Errorf("read from disk: got %+v, %v, want the same grants", again, err)
	}
	if err := saveMembership(d, m.withGrant(b.cred)); err != nil {
		t.Fatal(err)
	}
	if _, err := loadMembership(d, me.identity); err == nil {
		t.Error("a grant of another peer was loaded")
	}
}

// TestLongestEndorsedCredentialFitsAHello checks that the longest credential with its endorsement fits a hello.
func TestLongestEndorsedCredentialFitsAHello(t *testing.T) {
	cluster := key(t)
	labels := map[string]string{}
	for i := range maxSignedLabels {
		labels[fmt.Sprintf("l%d", i)] = strings.Repeat("v", maxSignedBytes/maxSignedLabels-2)
	}
	line := func(n int, labels map[string]string) actor {
		by, a := root(cluster), actor{}
		for range n {
			a = newActor(t)
			g, err := by.sign(&wirepb.LinkBody{Peer: []byte(a.id), Roles: uint32(AllRoles), Grant: true, Labels: labelsToWire(labels)}, time.Now().Add(grantLife))
			if err != nil {
				t.Fatal(err)
			}
			a.cred = g
			by = a.authority(cluster)
		}
		return a
	}
	for name, x := range map[string]actor{"three links": line(3, nil), "two links with labels": line(2, labels)} {
		holder := line(3, labels)
		holder.cred = newEndorsement(t, cluster, x, holder, time.Hour)
		w, err := holder.authority(cluster).issueWith(newActor(t).id, AllRoles, labels, time.Now().Add(time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := &wirepb.Hello{Credential: w.toWire(), Name: strings.Repeat("\U00010348", MaxName), Revoked: make([]byte, 32)}
		if n := proto.Size(m); n > limitOf(HelloID) {
			t.Errorf("%s: got %d bytes, want at most %d", name, n, limitOf(HelloID))
		} else {
			t.Logf("%s: %d bytes of %d", name, n, limitOf(HelloID))
		}
	}
}

// BenchmarkCheck measures what the check of a hello costs.
func BenchmarkCheck(b *testing.B) {
	cluster := key(b)
	h, _ := bareOf(b, cluster)
	line := generations(b, cluster, MaxChain)
	a, c := inviterWithGrant(b, root(cluster)), inviterWithGrant(b, root(cluster))
	d := inviterWithGrant(b, inviterWithGrant(b, c.authority(cluster)).authority(cluster))
	e := inviterWithGrant(b, inviterWithGrant(b, a.authority(cluster)).authority(cluster))
	first := actor{a.identity, newEndorsement(b, cluster, c, a, time.Hour)}
	third := actor{e.identity, newEndorsement(b, cluster, d, e, time.Hour)}
	for _, x := range []struct {
		name string
		who  actor
	}{
		{"guest of the founder", line[0]},
		{"guest of an inviter", line[1]},
		{"longest chain", line[3]},
		{"guest of an endorsed inviter", guest(b, first.authority(cluster), RoleWorker)},
		{"longest chain, longest endorsement", guest(b, third.authority(cluster), RoleWorker)},
	} {
		w := x.who.cred.toWire()
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := h.admission.check(x.who.id, w, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
