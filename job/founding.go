package job

// Founding: how the ID of a journal group is bound to the daemon that founded it. See docs/adr, ADR 114 and 157.

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Founding is the number with which a daemon has founded its journal group. The SHA-256 digest of the daemon's peer ID and
// this number begins with the ID of the group, followed by extraBits zero bits. So the number proves who founded the group:
// a number for another daemon would take about 2^84 tries to find. It is no secret. The zero value is none.
type Founding [foundingBytes]byte

const (
	foundingBytes = 16
	foundingLabel = "muster group of "
	// extraBits is how many bits of the digest must be zero after those that are the ID. Each bit doubles the tries of the
	// founder, who can choose the ID, and those of a forger, who cannot. With 20 bits the founder needs a tenth of a second.
	extraBits = 20
)

// The previous version did not require extra bits. The IDs of its groups have a mark instead, which this version
// avoids. So its proof, which 2^64 tries can forge, is not valid for a group of this version.
const (
	markBits = 20
	marker   = 0x9e3779b97f4a7c15 // odd, so that different IDs have different products
)

// OfVersionBefore reports whether the ID is one of a group that was founded by the version before.
func (g Group) OfVersionBefore() bool { return uint64(g)*marker>>(64-markBits) == 0 }

// Found draws numbers until one founds a group of this daemon. That takes a million tries on average.
func Found(founder Peer) (Founding, Group) {
	var f Founding
	_, _ = rand.Read(f[:]) // never fails: it ends the program if it has no random bytes
	return FoundFrom(founder, f)
}

// FoundFrom is Found with a given first number. For the same founder and number it always returns the same result, so a
// simulation can be repeated.
func FoundFrom(founder Peer, f Founding) (Founding, Group) {
	try := newTry(founder)
	for {
		if g, extra := try.digest(f); extra == 0 && !g.OfVersionBefore() {
			return f, g
		}
		low := f[foundingBytes-8:]
		binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)+1)
	}
}

// Proves reports whether the founder has founded this group with this number.
func (f Founding) Proves(founder Peer, g Group) bool {
	if f == (Founding{}) {
		return false
	}
	got, extra := newTry(founder).digest(f)
	return got == g && (extra == 0 || g.OfVersionBefore())
}

// Group returns the group that the founder has founded with this number. The number is trusted: see Proves.
func (f Founding) Group(founder Peer) Group {
	g, _ := newTry(founder).digest(f)
	return g
}

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

// try is the text that is hashed, with space for the number at its end.
type try []byte

func newTry(founder Peer) try {
	t := append([]byte(foundingLabel), founder...)
	return append(t, make([]byte, 1+foundingBytes)...) // a zero byte ends the ID of the founder
}

// digest returns the group of a number, and the extra bits, which are zero if the number founds the group.
func (t try) digest(f Founding) (g Group, extra uint32) {
	copy(t[len(t)-foundingBytes:], f[:])
	sum := sha256.Sum256(t)
	return Group(binary.BigEndian.Uint64(sum[:])), binary.BigEndian.Uint32(sum[8:]) >> (32 - extraBits)
}
