package job

// Founding: how the ID of a journal group is bound to the daemon that founded it. See docs/adr, ADR 114.

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Founding is the number with which a daemon has founded its journal group. The ID of the group is the beginning of the
// SHA-256 digest of the daemon's peer ID and this number. So the number proves who founded the group, and a number for
// another daemon would take about 2^64 tries to find. It is no secret. The zero value is none.
type Founding [foundingBytes]byte

const (
	foundingBytes = 16
	foundingLabel = "muster group of "
)

// Founded groups are recognised by their ID. An ID that was drawn at random, as earlier versions did, looks like one of a
// founded group once in 2^markBits times.
const (
	markBits = 20
	marker   = 0x9e3779b97f4a7c15 // odd, so that each ID has another product
)

// Founded reports whether the ID is one of a group that was founded with a Founding. Only its founder may claim such a
// group. Earlier versions drew the IDs of their groups at random; nothing proves who founded those.
func (g Group) Founded() bool {
	return g != 0 && uint64(g)*marker>>(64-markBits) == 0
}

// Found draws numbers until one gives this daemon the ID of a founded group. That takes a million tries on average, which
// is a tenth of a second.
func Found(founder Peer) (Founding, Group) {
	var f Founding
	_, _ = rand.Read(f[:]) // never fails: it ends the program if it has no random bytes
	return FoundFrom(founder, f)
}

// FoundFrom is Found with a given first number. For one founder and one number it always returns the same, so a
// simulation can be repeated.
func FoundFrom(founder Peer, f Founding) (Founding, Group) {
	try := newTry(founder)
	for {
		if g := try.group(f); g.Founded() {
			return f, g
		}
		low := f[foundingBytes-8:]
		binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)+1)
	}
}

// Proves reports whether the founder has founded this group with this number.
func (f Founding) Proves(founder Peer, g Group) bool {
	return f != (Founding{}) && g.Founded() && f.Group(founder) == g
}

// Group returns the group that the founder has founded with this number.
func (f Founding) Group(founder Peer) Group { return newTry(founder).group(f) }

// String returns the number as 32 hexadecimal digits, or "" if there is none.
func (f Founding) String() string {
	if f == (Founding{}) {
		return ""
	}
	return hex.EncodeToString(f[:])
}

// ParseFounding parses the output of Founding.String.
func ParseFounding(s string) (f Founding, err error) {
	if s == "" {
		return f, nil
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != foundingBytes {
		return f, fmt.Errorf("founding %.40q: want %d hexadecimal digits", s, 2*foundingBytes)
	}
	return Founding(b), nil
}

// try is the text of which the digest is taken, with room for the number at its end.
type try []byte

func newTry(founder Peer) try {
	t := append([]byte(foundingLabel), founder...)
	return append(t, make([]byte, 1+foundingBytes)...) // a zero byte ends the ID of the founder
}

func (t try) group(f Founding) Group {
	copy(t[len(t)-foundingBytes:], f[:])
	sum := sha256.Sum256(t)
	return Group(binary.BigEndian.Uint64(sum[:]))
}
