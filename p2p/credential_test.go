package p2p

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

// actor is a key with the authority that it has.
type actor struct {
	identity
	cred *Credential
}

func key(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newActor(t testing.TB) actor {
	t.Helper()
	me, err := newIdentity(key(t))
	if err != nil {
		t.Fatal(err)
	}
	return actor{identity: me}
}

func root(cluster ed25519.PrivateKey) authority {
	return authority{key: cluster, cluster: cluster.Public().(ed25519.PublicKey)}
}

func (a actor) authority(cluster ed25519.PrivateKey) authority {
	return authority{key: a.key, cluster: cluster.Public().(ed25519.PublicKey), chain: a.cred}
}

// generations returns a chain of n inviters; the cluster key signed the first.
func generations(t testing.TB, cluster ed25519.PrivateKey, n int) []actor {
	t.Helper()
	auth := root(cluster)
	var list []actor
	for range n {
		a := newActor(t)
		c, err := auth.issue(a.id, AllRoles, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		a.cred = c
		list = append(list, a)
		auth = a.authority(cluster)
	}
	return list
}

func TestCredentialSurvivesEncoding(t *testing.T) {
	cluster := key(t)
	for i, a := range generations(t, cluster, MaxChain) {
		b := a.cred.encode()
		c, err := ParseCredential(b)
		if err != nil {
			t.Fatalf("generation %d: %v", i, err)
		}
		if c.id != a.id || c.Roles != AllRoles || len(c.links) != i+1 || len(c.issuers()) != i || !c.NotAfter.Equal(a.cred.NotAfter) {
			t.Errorf("generation %d: got %+v, want all fields as issued", i, c)
		}
		if !bytes.Equal(c.encode(), b) {
			t.Errorf("generation %d changed when it was encoded and parsed, want c.encode() = %q", i, b)
		}
		if len(b) > maxCredential/2 {
			t.Errorf("generation %d: got %d bytes, want at most half of the bound, %d", i, len(b), maxCredential/2)
		}
	}
}

func TestIssueNeedsAuthority(t *testing.T) {
	cluster := key(t)
	line := generations(t, cluster, MaxChain)
	to := newActor(t)
	if _, err := line[MaxChain-1].authority(cluster).issue(to.id, AllRoles, time.Now()); !errors.Is(err, ErrChainTooLong) {
		t.Errorf("a chain of %d links: got %v, want ErrChainTooLong", MaxChain+1, err)
	}
	worker := newActor(t)
	c, err := root(cluster).issue(worker.id, RoleWorker, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	worker.cred = c
	if _, err := worker.authority(cluster).issue(to.id, RoleWorker, time.Now()); !errors.Is(err, ErrNotInviter) {
		t.Errorf("a credential issued by a worker: got %v, want ErrNotInviter", err)
	}
	clerk := newActor(t)
	if clerk.cred, err = root(cluster).issue(clerk.id, RoleWorker|RoleInviter, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := clerk.authority(cluster).issue(to.id, RoleScheduler, time.Now()); !errors.Is(err, ErrRoles) {
		t.Errorf("a role that the issuer lacks: got %v, want ErrRoles", err)
	}
}

// TestForgedCredentialsDoNotParse parses credentials that an honest daemon would not sign.
func TestForgedCredentialsDoNotParse(t *testing.T) {
	cluster := key(t)
	line := generations(t, cluster, 3)
	me := newActor(t)
	id := clusterOf(cluster.Public().(ed25519.PublicKey))
	forge := func(by ed25519.PrivateKey, body *wirepb.LinkBody, chain *Credential) *wirepb.Credential {
		b, err := proto.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		w := &wirepb.Credential{ClusterKey: cluster.Public().(ed25519.PublicKey)}
		w.Links = append(w.Links, &wirepb.Link{Body: b, Signature: ed25519.Sign(by, append([]byte(signCredential), b...))})
		if chain != nil {
			w.Links = append(w.Links, chain.toWire().GetLinks()...)
		}
		return w
	}
	body := func(change func(*wirepb.LinkBody)) *wirepb.LinkBody {
		b := &wirepb.LinkBody{Peer: []byte(me.id), Roles: uint32(AllRoles), NotAfter: time.Now().Add(time.Hour).Unix(), Cluster: id[:]}
		change(b)
		return b
	}
	same := func(*wirepb.LinkBody) {}
	worker, err := root(cluster).issue(newActor(t).id, RoleWorker, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := credentialFromWire(forge(cluster, body(same), nil)); err != nil {
		t.Fatalf("the honest one: %v", err)
	}
	other := clusterOf(key(t).Public().(ed25519.PublicKey))
	swapped := line[2].cred.toWire()
	swapped.Links[0], swapped.Links[1] = swapped.Links[1], swapped.Links[0]
	cut := line[2].cred.toWire()
	cut.Links = cut.Links[:2]
	long := forge(line[2].key, body(same), line[2].cred)
	long.Links = append(long.Links, long.Links[3])
	for name, w := range map[string]*wirepb.Credential{
		"nothing":                     {},
		"no links":                    {ClusterKey: cluster.Public().(ed25519.PublicKey)},
		"signed by itself":            forge(me.key, body(same), nil),
		"signed by a member's key":    forge(line[0].key, body(same), nil),
		"chain of another signer":     forge(line[1].key, body(same), line[0].cred),
		"signed by a worker":          forge(me.key, body(same), worker),
		"more roles than there are":   forge(cluster, body(func(b *wirepb.LinkBody) { b.Roles = 255 }), nil),
		"no roles":                    forge(cluster, body(func(b *wirepb.LinkBody) { b.Roles = 0 }), nil),
		"of another cluster":          forge(cluster, body(func(b *wirepb.LinkBody) { b.Cluster = other[:] }), nil),
		"no time":                     forge(cluster, body(func(b *wirepb.LinkBody) { b.NotAfter = 0 }), nil),
		"a time beyond time":          forge(cluster, body(func(b *wirepb.LinkBody) { b.NotAfter = 1 << 62 }), nil),
		"no peer":                     forge(cluster, body(func(b *wirepb.LinkBody) { b.Peer = nil }), nil),
		"a peer of another kind":      forge(cluster, body(func(b *wirepb.LinkBody) { b.Peer = append([]byte{0x12, 0x20}, make([]byte, 32)...) }), nil),
		"links in another order":      swapped,
		"the chain cut off":           cut,
		"a chain longer than allowed": long,
	} {
		if c, err := credentialFromWire(w); !errors.Is(err, ErrBadCredential) {
			t.Errorf("%s: got %+v, %v, want ErrBadCredential", name, c, err)
		}
	}
}

// bare returns a host without a network, which is enough to decide about messages.
func bare(t testing.TB) (*Host, ed25519.PrivateKey) {
	t.Helper()
	cluster := key(t)
	me := newActor(t)
	h := newDeciders(Config{}, newOwnMembership(me.identity, "bare", time.Hour, disk{}), slog.New(slog.DiscardHandler))
	c, err := root(cluster).issue(me.id, AllRoles, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	m := &membership{cluster: c.cluster, key: c.key, secret: cluster}
	if err := h.settle(m.with(c)); err != nil {
		t.Fatal(err)
	}
	return h, cluster
}

func TestGateChecksHolderExpiryAndCluster(t *testing.T) {
	h, cluster := bare(t)
	a := generations(t, cluster, 2)[1]
	old := newActor(t)
	ended, err := root(cluster).issue(old.id, AllRoles, time.Now().Add(-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	alien := generations(t, key(t), 1)[0]
	for _, c := range []struct {
		name string
		who  actor
		show *wirepb.Credential
		want error
	}{
		{"a member", a, a.cred.toWire(), nil},
		{"somebody else's", newActor(t), a.cred.toWire(), ErrBadCredential},
		{"expired", old, ended.toWire(), ErrExpired},
		{"another cluster's", alien, alien.cred.toWire(), ErrWrongCluster},
		{"none", a, nil, ErrBadCredential},
	} {
		if _, err := h.admission.check(c.who.id, c.show, time.Now()); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	h.own.current.Store(nil)
	if _, err := h.admission.check(a.id, a.cred.toWire(), time.Now()); !errors.Is(err, ErrNotReady) {
		t.Errorf("a host without a cluster: got %v, want ErrNotReady", err)
	}
}

func TestRolesSurviveTextAndJSON(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  Roles
	}{{nil, RoleWorker | RoleScheduler}, {[]string{"worker"}, RoleWorker}, {[]string{"scheduler", "worker", "worker"}, RoleWorker | RoleScheduler}} {
		if got, err := ParseRoles(c.names); err != nil || got != c.want {
			t.Errorf("ParseRoles(%v) = %s, %v, want %v", c.names, got, err, c.want)
		}
	}
	if _, err := ParseRoles([]string{"admin"}); err == nil {
		t.Error("ParseRoles accepted a role that does not exist")
	}
	b, err := json.Marshal(Member{Roles: RoleWorker | RoleInviter})
	if err != nil || !bytes.Contains(b, []byte(`"roles":["worker","inviter"]`)) {
		t.Errorf("roles in JSON: got %s, %v, want worker and inviter", b, err)
	}
	var m Member
	if err := json.Unmarshal(b, &m); err != nil || m.Roles != RoleWorker|RoleInviter {
		t.Errorf("roles from JSON: got %s, %v, want worker and inviter", m.Roles, err)
	}
}

func FuzzParseCredential(f *testing.F) {
	for _, a := range generations(f, key(f), MaxChain) {
		f.Add(a.cred.encode())
	}
	cluster := key(f)
	one, two := inviterWithGrant(f, root(cluster)), inviterWithGrant(f, inviterWithGrant(f, root(cluster)).authority(cluster))
	f.Add(newEndorsement(f, cluster, one, two, time.Hour).encode())
	f.Add(guest(f, actor{one.identity, newEndorsement(f, cluster, two, one, time.Hour)}.authority(cluster), RoleWorker).cred.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCredential(b)
		if err != nil {
			if !errors.Is(err, ErrBadCredential) {
				t.Fatalf("error of another kind: got %v, want ErrBadCredential", err)
			}
			return
		}
		again, err := ParseCredential(c.encode())
		if err != nil || again.id != c.id || again.Roles != c.Roles || !again.NotAfter.Equal(c.NotAfter) {
			t.Fatalf("%+v became %+v, %v, want again.id = %v, again.Roles = %v and again.NotAfter = %v", c, again, err, c.id, c.Roles, c.NotAfter)
		}
	})
}

// pipe is a stream that holds one side's bytes.
type pipe struct {
	*bytes.Reader
	out bytes.Buffer
}

func (p *pipe) Write(b []byte) (int, error) { return p.out.Write(b) }

func FuzzHelloAndJoin(f *testing.F) {
	h, cluster := bare(f)
	a := generations(f, cluster, 2)[1]
	s, err := newSecret()
	if err != nil {
		f.Fatal(err)
	}
	if err := h.issuer.invites.add(s, invite{Roles: AllRoles, Left: MaxUses, Expires: time.Now().Add(time.Hour)}, time.Now()); err != nil {
		f.Fatal(err)
	}
	id := a.cred.cluster
	var seed bytes.Buffer
	for _, m := range []proto.Message{
		&wirepb.Hello{Credential: a.cred.toWire(), Name: "a", Revoked: make([]byte, 32)},
		&wirepb.JoinRequest{Cluster: id[:], Secret: s[:], Name: "a"},
		&wirepb.JoinRequest{Cluster: id[:], Credential: a.cred.toWire()},
		&wirepb.JoinRequest{Cluster: id[:], Credential: a.cred.toWire(), Origin: a.cred.toWire()},
		&wirepb.JoinRequest{Cluster: id[:], Credential: a.cred.toWire(), Origin: a.cred.toWire(), Endorsed: true, Grants: []*wirepb.Credential{grantOf(f, root(cluster), a).toWire()}},
	} {
		seed.Reset()
		if err := writeMsg(&seed, m); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(seed.Bytes()))
	}
	from := ma.StringCast("/ip4/10.0.0.1/tcp/1")
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &pipe{Reader: bytes.NewReader(b)}
		admitted, err := h.admission.answerHello(a.id, from, p, func() {})
		var r wirepb.HelloReply
		if err == nil {
			if err := readMsg(&p.out, &r, 4096); err != nil || admitted != (r.GetCode() == 0) {
				t.Fatalf("admitted %t, got answer %v, %v, want a code that agrees", admitted, &r, err)
			}
		} else if admitted || p.out.Len() > 0 {
			t.Fatal("want neither admission nor an answer after", err)
		}
		p = &pipe{Reader: bytes.NewReader(b)}
		if err := h.issuer.answerJoin(a.id, from, p); err == nil {
			var j wirepb.JoinReply
			if err := readMsg(&p.out, &j, 4096); err != nil || (j.GetCode() == 0) != (j.GetCredential() != nil) {
				t.Fatalf("got answer %v, %v, want a credential if and only if the code is 0", &j, err)
			}
		}
	})
}

// TestCredentialExpiresWithItsEarliestLink checks that a credential expires when the first of its links does, that
// nobody signs beyond the own expiry, and that a gate refuses a chain with one expired link, as a hostile inviter would
// sign it.
func TestCredentialExpiresWithItsEarliestLink(t *testing.T) {
	h, cluster := bare(t)
	now := time.Now()
	inviter := newActor(t)
	var err error
	if inviter.cred, err = root(cluster).issue(inviter.id, AllRoles, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	to := newActor(t)
	c, err := inviter.authority(cluster).issue(to.id, RoleWorker, now.Add(time.Hour))
	if err != nil || time.Unix(c.links[0].notAfter, 0).After(inviter.cred.NotAfter) {
		t.Errorf("signed until %s, want at most %s, where the inviter's credential ends; %v", c.NotAfter, inviter.cred.NotAfter, err)
	}
	if !c.InvitersEnd().Equal(inviter.cred.NotAfter) || !inviter.cred.InvitersEnd().Equal(inviter.cred.NotAfter) {
		t.Errorf("the inviters end at %s, want %s", c.InvitersEnd(), inviter.cred.NotAfter)
	}
	hostile := *inviter.cred
	hostile.NotAfter = now.Add(10 * 365 * 24 * time.Hour)
	long, err := authority{key: inviter.key, cluster: c.key, chain: &hostile}.issue(to.id, RoleWorker, hostile.NotAfter)
	if err != nil {
		t.Fatal(err)
	}
	if !long.NotAfter.Equal(inviter.cred.NotAfter) {
		t.Errorf("got a credential that lasts until %s, want %s, as its inviter's", long.NotAfter, inviter.cred.NotAfter)
	}
	for after, want := range map[time.Duration]error{30 * time.Second: nil, 2 * time.Minute: ErrExpired, 24 * 365 * time.Hour: ErrExpired} {
		if _, err := h.admission.check(to.id, long.toWire(), now.Add(after)); !errors.Is(err, want) {
			t.Errorf("after %s: got %v, want %v", after, err, want)
		}
	}
}

func TestCredentialNamesWhoLetItsHolderIn(t *testing.T) {
	cluster := key(t)
	line := generations(t, cluster, 2)
	body := func(by ...[]byte) *wirepb.LinkBody {
		return &wirepb.LinkBody{Peer: []byte(newActor(t).id), Roles: uint32(RoleWorker), LetInBy: by}
	}
	one := []byte(line[0].id)
	for name, c := range map[string]struct {
		by   [][]byte
		want int // -1: refused
	}{
		"not told": {nil, 2}, "the cluster key": {[][]byte{{}}, 0}, "one": {[][]byte{one}, 1}, "three": {[][]byte{one, one, one}, 3},
		"four": {[][]byte{one, one, one, one}, -1}, "no peer": {[][]byte{{1, 2}}, -1}, "the key and one": {[][]byte{{}, one}, -1},
	} {
		cred, err := line[1].authority(cluster).sign(body(c.by...), time.Now().Add(time.Hour))
		if (err != nil) != (c.want < 0) || err == nil && len(cred.lineage(0)) != c.want {
			t.Errorf("%s: got %v, %v, want the number of inviters that let it in", name, cred, err)
		}
	}
	// The longest possible credential fits a message.
	longest := generations(t, cluster, MaxChain-1)
	cred, err := longest[MaxChain-2].authority(cluster).sign(body(one, one, one), time.Now().Add(time.Hour))
	if err != nil || len(cred.encode()) > maxCredential*3/4 {
		t.Errorf("got %d bytes, %v, want at most %v", len(cred.encode()), err, maxCredential*3/4)
	}
}
