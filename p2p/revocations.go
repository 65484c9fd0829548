package p2p

// The list of revocations: which are kept, within which bounds, and what two daemons compare.

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	revokedFile = "revoked.list"
	// maxByKey bounds the revocations that are kept from the cluster key. No others count against this bound.
	maxByKey = 4096
	// maxBySigner bounds the revocations that are kept from one member; maxByBranch, from an inviter of the second
	// generation and all members below it; maxByFamily, from an inviter of the first generation and all below it. So no
	// member can use up the room of the members above it, or of other branches.
	maxBySigner = 128
	maxByBranch = 256
	maxByFamily = 512
	// maxByMembers bounds the revocations that are kept from all members together.
	maxByMembers = 4096
	// maxLegacy bounds the entries of the previous version on our own disk.
	maxLegacy = 4096
	// revokedBatch is the number of entries in one message.
	revokedBatch = 64
)

// slot is the key of an entry: what one signer says about one peer, under one chain of issuers.
type slot struct {
	line   string // the first-generation inviter, then those below it, down to the signer; empty for the cluster key
	depth  int    // length of the line in peers
	signer peer.ID
	peer   peer.ID
}

// place is the key of an entry and the bounds that it counts against, computed once.
type place struct {
	slot  slot
	lines [levels]string    // for each level, names the set of entries that share a bound with this one
	print [sha256.Size]byte // identifies an entry that was verified before
}

// placed returns the entry with its place filled in.
func placed(r revocation) revocation {
	r.place.slot = slot{peer: r.peer, signer: r.signer}
	r.place.print = printOf(r.wire)
	if r.signer == "" {
		return r
	}
	line := slices.Clone(r.above)
	slices.Reverse(line)
	line = append(line, r.signer)
	r.place.slot.line, r.place.slot.depth = joined(line), len(line)
	r.place.lines = [levels]string{r.place.slot.line, joined(line[:min(2, len(line))]), joined(line[:1]), ""}
	return r
}

// joined encodes a list of peers as a string; different lists give different strings.
func joined(ids []peer.ID) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%02x%s", len(id), string(id))
	}
	return b.String()
}

// rank orders slots, those of earlier generations first. If there are too many, the last ones are dropped.
func (s slot) rank(o slot) int {
	return cmp.Or(cmp.Compare(s.depth, o.depth), cmp.Compare(s.line, o.line), cmp.Compare(s.peer, o.peer))
}

// levels is the number of bounds that apply to an entry. bounds lists those for entries of members.
const levels = 4

var bounds = [levels]int{maxBySigner, maxByBranch, maxByFamily, maxByMembers}

// crowds counts the entries that share each bound.
type crowds struct {
	key     int
	members [levels]map[string]int
}

func newCrowds() *crowds {
	c := &crowds{}
	for level := range c.members {
		c.members[level] = map[string]int{}
	}
	return c
}

// over counts one more entry at a level, and reports whether it exceeds the bound.
func (c *crowds) over(r revocation, level int) bool {
	if r.signer == "" {
		if level == 0 {
			c.key++
		}
		return c.key > maxByKey
	}
	line := r.place.lines[level]
	c.members[level][line]++
	return c.members[level][line] > bounds[level]
}

// fits reports whether all entries are within the bounds.
func fits(all map[slot]revocation) bool {
	c := newCrowds()
	for _, r := range all {
		for level := range levels {
			if c.over(r, level) {
				return false
			}
		}
	}
	return true
}

// trimmed drops the entries beyond the bounds. The result does not depend on the order in which the entries arrived: an
// entry that was dropped would be dropped again, because the entries before it stay or are replaced by earlier ones.
func trimmed(all map[slot]revocation) map[slot]revocation {
	if fits(all) {
		return all
	}
	order := slices.SortedFunc(maps.Keys(all), slot.rank)
	c := newCrowds()
	for level := range levels {
		order = slices.DeleteFunc(order, func(s slot) bool { return c.over(all[s], level) && (s.signer != "" || level == 0) })
	}
	kept := make(map[slot]revocation, len(order))
	for _, s := range order {
		kept[s] = all[s]
	}
	return kept
}

// revocations holds all revocations that this daemon knows.
type revocations struct {
	disk disk

	mu      sync.Mutex
	cluster clusterID                      // guarded by mu
	key     ed25519.PublicKey              // guarded by mu
	list    map[slot]revocation            // guarded by mu
	legacy  map[peer.ID]revocation         // guarded by mu; by members of the previous version, from our own disk
	stands  verdicts                       // guarded by mu; what list and legacy mean together
	known   map[[sha256.Size]byte]struct{} // guarded by mu; the prints of list
	news    []*wirepb.Revocation           // guarded by mu; entries that were not passed on yet
	sum     []byte                         // guarded by mu; the digest; nil: not computed
}

func newRevocations(d disk) *revocations {
	return &revocations{disk: d, list: map[slot]revocation{}, legacy: map[peer.ID]revocation{}}
}

// open loads the list of a cluster.
func (r *revocations) open(cluster clusterID, key ed25519.PublicKey) error {
	b, err := r.disk.read(revokedFile)
	if err != nil {
		return err
	}
	var w wirepb.RevocationList
	if err := proto.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("p2p: read %s/%s: damaged: %w", r.disk.dir, revokedFile, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster, r.key, r.news = cluster, key, nil
	list, legacy := map[slot]revocation{}, map[peer.ID]revocation{}
	for _, e := range w.GetEntries() {
		rev, err := revocationFromWire(e, cluster, key)
		switch {
		case err != nil: // for example an entry of a former cluster
		case !rev.legacy:
			put(list, rev)
		case len(legacy) < maxLegacy:
			legacy[rev.peer] = rev
		}
	}
	r.setLocked(trimmed(list), legacy)
	return nil
}

// put adds an entry unless the list has one that overrides it. It reports whether it added the entry.
func put(list map[slot]revocation, rev revocation) bool {
	s := rev.place.slot
	if old, ok := list[s]; ok && !rev.over(old) {
		return false
	}
	list[s] = rev
	return true
}

func (r *revocations) setLocked(list map[slot]revocation, legacy map[peer.ID]revocation) {
	r.list, r.legacy, r.sum = list, legacy, nil
	r.stands = verdictsOf(list, legacy)
	r.known = make(map[[sha256.Size]byte]struct{}, len(list))
	for _, rev := range list {
		r.known[rev.place.print] = struct{}{}
	}
}

// merge verifies entries from another daemon, stores the new ones and returns them. If one entry is bad, merge refuses all
// of them. It skips entries that members of the previous version signed, because those could revoke anybody.
func (r *revocations) merge(entries []*wirepb.Revocation) ([]revocation, error) {
	unknown, cluster, key := r.unknown(entries)
	var fresh []revocation
	for _, e := range unknown { // without the lock, because verifying is expensive
		rev, err := revocationFromWire(e, cluster, key)
		if err != nil {
			return nil, err
		}
		if !rev.legacy {
			fresh = append(fresh, rev)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cluster != cluster {
		return nil, ErrWrongCluster
	}
	return r.keepLocked(fresh)
}

// unknown returns the entries that are not yet in the list in exactly this form, and the cluster and its key to verify
// them with.
func (r *revocations) unknown(entries []*wirepb.Revocation) ([]*wirepb.Revocation, clusterID, ed25519.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*wirepb.Revocation
	for _, e := range entries {
		if _, ok := r.known[printOf(e)]; !ok {
			list = append(list, e)
		}
	}
	return list, r.cluster, r.key
}

// printOf identifies an entry that was verified before.
func printOf(w *wirepb.Revocation) [sha256.Size]byte {
	h := sha256.New()
	h.Write(w.GetSignature())
	h.Write(w.GetBody())
	for _, l := range w.GetIssuer().GetLinks() { // one signer may have several chains
		h.Write(l.GetSignature())
		h.Write(l.GetBody())
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// add stores an entry of our own, and reports whether it was kept.
func (r *revocations) add(rev revocation) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, err := r.keepLocked([]revocation{rev})
	return len(kept) > 0, err
}

// keepLocked stores entries, first on disk, and returns the entries that were kept.
func (r *revocations) keepLocked(fresh []revocation) ([]revocation, error) {
	list := maps.Clone(r.list)
	changed := false
	for _, rev := range fresh {
		changed = put(list, rev) || changed
	}
	if !changed {
		return nil, nil
	}
	list = trimmed(list)
	var kept []revocation
	told := map[slot]bool{}
	for _, rev := range fresh {
		s := rev.place.slot
		now, ok := list[s]
		before, had := r.list[s]
		if ok && now.wire == rev.wire && (!had || before.wire != rev.wire) && !told[s] {
			kept, told[s] = append(kept, rev), true
		}
	}
	if len(kept) == 0 {
		return nil, nil
	}
	b, err := proto.Marshal(&wirepb.RevocationList{Entries: wires(list, r.legacy)})
	if err == nil {
		err = r.disk.write(revokedFile, b)
	}
	if err != nil {
		return nil, fmt.Errorf("p2p: keep revocations: %w", err)
	}
	r.setLocked(list, r.legacy)
	for _, rev := range kept {
		r.news = append(r.news, rev.wire)
	}
	if len(r.news) > maxByKey+maxByMembers {
		r.news = wires(list, nil) // entries that were replaced meanwhile need not be passed on
	}
	return kept, nil
}

// wires returns all entries as they are stored and sent, in the same order on all daemons.
func wires(list map[slot]revocation, legacy map[peer.ID]revocation) []*wirepb.Revocation {
	entries := make([]*wirepb.Revocation, 0, len(list)+len(legacy))
	for _, s := range slices.SortedFunc(maps.Keys(list), slot.rank) {
		entries = append(entries, list[s].wire)
	}
	for _, id := range slices.Sorted(maps.Keys(legacy)) {
		entries = append(entries, legacy[id].wire)
	}
	return entries
}

// all returns the entries for a member that may lack some.
func (r *revocations) all() []*wirepb.Revocation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return wires(r.list, nil)
}

// takeNews returns the entries that are new since the last call.
func (r *revocations) takeNews() []*wirepb.Revocation {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := r.news
	r.news = nil
	return news
}

// has reports whether a peer is revoked, whatever credential it shows.
func (r *revocations) has(id peer.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stands.out(id)
}

// about reports whether a peer with the lineage by is revoked.
func (r *revocations) about(id peer.ID, by []peer.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	revoked, _ := r.stands.about(id, by)
	return revoked || r.stands.byRevoked(by)
}

// forgetIn removes revoked members from the peer book, and returns them.
func (r *revocations) forgetIn(b *book) (out []contact) {
	for _, c := range b.list() {
		if r.has(c.id) || r.about(c.id, c.by) {
			b.forget(c.id)
			out = append(out, c)
		}
	}
	return out
}

// verdict returns whether a credential is still valid.
func (r *revocations) verdict(c *Credential) verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stands.of(c)
}

// tainted reports whether the holder of a credential or a peer that signed it is revoked.
func (r *revocations) tainted(c *Credential) bool { return r.verdict(c) != valid }

// said returns the latest revocation of a peer by a signer; the empty signer is the cluster key.
func (r *revocations) said(signer, p peer.ID) (revocation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.stands.by[signer]
	if signer == "" {
		m = r.stands.key
	}
	rev, ok := m[p]
	return rev, ok
}

// digest returns a digest that is equal on two daemons if they know the same revocations. Entries of the previous version
// are not part of it, because they are not passed on.
func (r *revocations) digest() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum == nil {
		h := sha256.New()
		for _, s := range slices.SortedFunc(maps.Keys(r.list), slot.rank) {
			body := sha256.Sum256(r.list[s].wire.GetBody())
			fmt.Fprintf(h, "%d:%s", len(s.line), s.line)
			h.Write(body[:])
		}
		r.sum = h.Sum(nil)
	}
	return bytes.Clone(r.sum)
}
