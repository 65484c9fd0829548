package p2p

// Twins: two running daemons with the same key, for example because a data directory was copied. Other members tell them
// about each other, and the younger one stops.
// See docs/adr, ADR 166.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// twinWait bounds the time of the questions before a daemon starts. twinAnswers is how many answers are enough.
	twinWait    = time.Second
	twinAnswers = 3
	twinAsked   = 8 // members that are asked before the start
	// twinEvery is how often a running daemon asks twinAnswers members.
	twinEvery = 20 * time.Second
	// proofWait bounds the wait for a proof. A connection of a daemon that was killed never gives one.
	proofWait = 400 * time.Millisecond
	// maxProofs bounds the connections of a peer that are asked, and the proofs in an answer.
	maxProofs = 8
	// sameAge is the age difference below which the instance numbers decide which twin stops, not the ages: the two sides
	// measure the difference slightly differently.
	sameAge = 2 * time.Second
	// twinKept is how long a sighting is kept. maxSightings is how many are kept.
	twinKept     = 10 * time.Minute
	maxSightings = 64

	nonceSize    = 32
	instanceSize = 16
)

// TwinError says that an older daemon with the same key runs. This daemon must stop.
type TwinError struct {
	Peer        job.Peer
	Here, There string // addresses of this daemon and of the other one, as another member sees them
}

func (e *TwinError) Error() string {
	return fmt.Sprintf("an older daemon with the identity of this one (%s) runs at %s, and this one is at %s: the data directory was copied. "+
		"Stop the other one for good, or make this host a member of its own: empty its data directory, and join with a token of `muster invite`", e.Peer, e.There, e.Here)
}

// Sighting is an identity that two running daemons were seen to have.
type Sighting struct {
	Peer        job.Peer
	Here, There string // their addresses
	At          time.Time
}

// Twins looks for other daemons with the key of this one, and tells other members about their twins.
type Twins struct {
	own      *ownMembership
	members  connected
	dialer   *dialer
	book     *book
	instance [instanceSize]byte // random number of this process
	began    time.Time
	log      *slog.Logger

	mu     sync.Mutex
	seen   map[peer.ID]Sighting            // guarded by mu
	losers map[[instanceSize]byte]struct{} // guarded by mu; instances that must stop, as this daemon has decided
}

func newTwins(own *ownMembership, members connected, d *dialer, b *book, log *slog.Logger) *Twins {
	t := &Twins{own: own, members: members, dialer: d, book: b, began: time.Now(), log: log, seen: map[peer.ID]Sighting{}, losers: map[[instanceSize]byte]struct{}{}}
	_, _ = rand.Read(t.instance[:]) // never fails: it ends the program if it has no random bytes
	return t
}

// Seen returns the recent sightings, the newest first.
func (t *Twins) Seen() []Sighting {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetOld()
	all := slices.Collect(maps.Values(t.seen))
	slices.SortFunc(all, func(a, b Sighting) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Peer, b.Peer)) })
	return all
}

// forgetOld forgets old sightings. mu is held.
func (t *Twins) forgetOld() {
	maps.DeleteFunc(t.seen, func(_ peer.ID, s Sighting) bool { return time.Since(s.At) >= twinKept })
}

// note records a sighting, and logs it if it is new.
func (t *Twins) note(id peer.ID, here, there string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetOld()
	_, known := t.seen[id]
	if !known && len(t.seen) >= maxSightings {
		return
	}
	t.seen[id] = Sighting{Peer: job.Peer(id.String()), Here: here, There: there, At: time.Now()}
	if !known {
		t.log.Warn("two daemons have one identity: a data directory was copied", "peer", id, "at", here, "and_at", there)
	}
}

// Alone asks some members whether an older daemon with this key runs, and returns a TwinError if so. It waits for a
// second at most, and not at all if no member is known. A member that does not answer in time is ignored.
func (t *Twins) Alone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, twinWait)
	defer cancel()
	known := t.known()
	answers := make(chan error, len(known))
	for _, info := range known {
		go func() {
			err := t.dialer.connect(ctx, info)
			if err == nil {
				err = t.ask(ctx, info.ID)
			}
			answers <- err
		}()
	}
	good := 0
	for range known {
		select {
		case err := <-answers:
			if twin := (*TwinError)(nil); errors.As(err, &twin) {
				return twin
			}
			if err == nil {
				good++
			}
		case <-ctx.Done():
			return nil
		}
		if good >= twinAnswers {
			return nil
		}
	}
	return nil
}

// known returns some members with addresses, the bootstrap members first.
func (t *Twins) known() []peer.AddrInfo {
	out := t.dialer.seeds()
	contacts := t.book.list()
	slices.SortFunc(contacts, func(a, b contact) int { return b.LastSeen.Compare(a.LastSeen) })
	for _, c := range contacts {
		out = append(out, peer.AddrInfo{ID: c.id, Addrs: c.dial})
	}
	met := map[peer.ID]bool{t.own.identity.id: true}
	out = slices.DeleteFunc(out, func(i peer.AddrInfo) bool { was := met[i.ID]; met[i.ID] = true; return was })
	return out[:min(len(out), twinAsked)]
}

// run asks some connected members periodically, and returns a TwinError if an older daemon with this key runs.
func (t *Twins) run(ctx context.Context) error {
	for {
		timer := time.NewTimer(twinEvery/2 + mrand.N(twinEvery))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		present := t.members.roster.present()
		mrand.Shuffle(len(present), func(i, j int) { present[i], present[j] = present[j], present[i] })
		for _, g := range present[:min(len(present), twinAnswers)] {
			within, cancel := context.WithTimeout(ctx, twinWait)
			err := t.ask(within, g.id)
			cancel()
			if errors.As(err, new(*TwinError)) {
				return err
			}
		}
	}
}

// ask asks a connected member. It returns a TwinError if an older daemon with this key runs. It only records a younger
// one, which stops by itself.
func (t *Twins) ask(ctx context.Context, p peer.ID) error {
	s, err := t.members.open(ctx, p)
	if err != nil {
		return err
	}
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:])
	var r wirepb.TwinReply
	if err := ask(ctx, s, TwinID, &wirepb.TwinAsk{Nonce: nonce[:], Instance: t.instance[:]}, &r); err != nil {
		return err
	}
	for _, proof := range r.GetProofs()[:min(len(r.GetProofs()), maxProofs)] {
		if !proves(t.own.identity.id, nonce[:], proof) || bytes.Equal(proof.GetInstance(), t.instance[:]) {
			continue // the member lies, or means this daemon
		}
		here, there := addressText(r.GetAddress()), addressText(proof.GetAddress())
		if t.loses(proof, time.Since(t.began)) {
			return &TwinError{Peer: job.Peer(t.own.identity.id.String()), Here: here, There: there}
		}
		t.note(t.own.identity.id, here, there)
	}
	return nil
}

// loses reports whether this daemon, which has this age, is the twin that must stop. The younger twin stops. If the ages
// differ by less than sameAge, the twin with the greater instance number stops.
//
// Each twin underestimates the other's age by the time that an answer takes. So if the difference is near sameAge, each
// could take the other for the younger one, and neither would stop. Therefore the twin with the lower number decides:
// once it has decided that the other must stop, it keeps to that, and says so in its proof.
func (t *Twins) loses(proof *wirepb.TwinProof, age time.Duration) bool {
	if bytes.Equal(proof.GetLoser(), t.instance[:]) {
		return true
	}
	older := time.Duration(proof.GetAgeNs()) - age // how much older the other twin is; slightly too low
	if bytes.Compare(proof.GetInstance(), t.instance[:]) < 0 {
		return older > -sameAge
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	other := [instanceSize]byte(proof.GetInstance())
	if _, decided := t.losers[other]; decided {
		return false
	}
	if older >= sameAge {
		return true
	}
	if len(t.losers) >= maxSightings {
		clear(t.losers) // maxSightings twins have come and gone; it decides again about twins that still run
	}
	t.losers[other] = struct{}{}
	return false
}

// serve answers a member: with the proofs of the other daemons that have the member's key, or, if the member asks for it,
// with the proof of this daemon.
func (t *Twins) serve(s network.Stream) {
	var m wirepb.TwinAsk
	err := readMsg(s, &m, limitOf(TwinID))
	if err == nil && len(m.GetNonce()) != nonceSize {
		err = errHello
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	r := &wirepb.TwinReply{Address: s.Conn().RemoteMultiaddr().String()}
	if m.GetProve() {
		r.Proofs = []*wirepb.TwinProof{t.prove(m.GetNonce(), m.GetInstance())}
	} else {
		r.Proofs = t.others(s.Conn(), m.GetNonce(), m.GetInstance())
	}
	if err := writeMsg(s, r); err != nil {
		_ = s.Reset()
		return
	}
	s.Close()
}

// others asks the daemon at each other connection of the asking peer to prove that it runs, and returns the proofs of
// daemons other than the asker. Each proof signs the asker's nonce, so an old proof cannot be used.
func (t *Twins) others(asker network.Conn, nonce, instance []byte) []*wirepb.TwinProof {
	id := asker.RemotePeer()
	conns := t.members.network.ConnsToPeer(id)
	conns = slices.DeleteFunc(conns, func(c network.Conn) bool { return c.ID() == asker.ID() })
	conns = conns[:min(len(conns), maxProofs)]
	found := make([]*wirepb.TwinProof, len(conns))
	ctx, cancel := context.WithTimeout(context.Background(), proofWait) //nolint:forbidigo // a handler of streams gets none; it ends by itself
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			s, err := c.NewStream(ctx)
			if err != nil {
				return
			}
			var r wirepb.TwinReply
			if err := ask(ctx, s, TwinID, &wirepb.TwinAsk{Nonce: nonce, Instance: instance, Prove: true}, &r); err != nil || len(r.GetProofs()) != 1 {
				return
			}
			if p := r.GetProofs()[0]; proves(id, nonce, p) && !bytes.Equal(p.GetInstance(), instance) {
				p.Address = c.RemoteMultiaddr().String()
				found[i] = p
			}
		})
	}
	wg.Wait()
	found = slices.DeleteFunc(found, func(p *wirepb.TwinProof) bool { return p == nil })
	if len(found) > 0 {
		t.note(id, asker.RemoteMultiaddr().String(), found[0].GetAddress())
	}
	return found
}

// prove signs that this daemon runs, and whether it has decided that the asker must stop.
func (t *Twins) prove(nonce, asker []byte) *wirepb.TwinProof {
	p := &wirepb.TwinProof{Instance: t.instance[:], AgeNs: int64(time.Since(t.began))}
	if len(asker) == instanceSize {
		t.mu.Lock()
		if _, loses := t.losers[[instanceSize]byte(asker)]; loses {
			p.Loser = asker
		}
		t.mu.Unlock()
	}
	p.Signature = ed25519.Sign(t.own.identity.key, twinText(t.own.identity.id, nonce, p))
	return p
}

// proves reports whether a proof was signed with the key of this peer for this nonce.
func proves(id peer.ID, nonce []byte, p *wirepb.TwinProof) bool {
	key, err := edKey(id)
	return err == nil && len(p.GetInstance()) == instanceSize && (len(p.GetLoser()) == 0 || len(p.GetLoser()) == instanceSize) && p.GetAgeNs() >= 0 && ed25519.Verify(key, twinText(id, nonce, p), p.GetSignature())
}

// twinText returns the text that a proof signs. All its parts have a fixed length, except the peer ID, which follows from
// the key, and the last part.
func twinText(id peer.ID, nonce []byte, p *wirepb.TwinProof) []byte {
	b := append([]byte("muster twin of "), id...)
	b = append(append(append(b, 0), nonce...), p.GetInstance()...)
	return append(binary.BigEndian.AppendUint64(b, uint64(p.GetAgeNs())), p.GetLoser()...)
}

// addressText returns an address from a member as a text that is safe to show to people.
func addressText(s string) string {
	if len(s) > maxAddr {
		s = s[:maxAddr]
	}
	for _, r := range s {
		if r < ' ' || r > '~' {
			return "an unknown address"
		}
	}
	return cmp.Or(s, "an unknown address")
}
