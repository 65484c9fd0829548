package job

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

func TestOnlyTheFounderProvesAGroup(t *testing.T) {
	f, g := Found("amy")
	if g.OfVersionBefore() || !f.Proves("amy", g) || f.Group("amy") != g {
		t.Fatalf("group %s is not proven by its founding %s", g, f)
	}
	other, theirs := Found("amy")
	if theirs == g || other.Proves("amy", g) || f.Proves("amy", theirs) {
		t.Errorf("a founding proves another group of its founder")
	}
	for _, p := range []Peer{"", "bob", "am", "amyy", "amy\x00", "Amy"} {
		if f.Proves(p, g) {
			t.Errorf("%q proves the group of amy", p)
		}
	}
	if (Founding{}).Proves("amy", g) {
		t.Error("an empty founding proves a group")
	}
	if back, err := ParseFounding(f.String()); err != nil || back != f {
		t.Errorf("parsed %s: %s, %v, want the same", f, back, err)
	}
	for _, s := range []string{"00", f.String() + "00", "x" + f.String()[1:]} {
		if _, err := ParseFounding(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

// A number whose digest begins with the ID proves nothing without the extra bits. The version before requested only
// such a number.
func TestSixtyFourBitsProveNoGroup(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1 << 18 {
		var f Founding
		binary.BigEndian.PutUint64(f[:], r.Uint64())
		binary.BigEndian.PutUint64(f[8:], r.Uint64())
		g, extra := newTry("mallory").digest(f)
		if proven := f.Proves("mallory", g); proven != (extra == 0 || g.OfVersionBefore()) {
			t.Fatalf("number %s: its digest begins with %s, then has %05x; proven: %t, want %v", f, g, extra, proven, (extra == 0 || g.OfVersionBefore()))
		}
	}
}

// Each extra bit is checked: no number for which one of them is not zero proves a group.
func TestEachExtraBitIsChecked(t *testing.T) {
	lacks := map[uint32]bool{}
	for n := uint32(0); len(lacks) < extraBits; n++ {
		f := Founding{0: 1}
		binary.BigEndian.PutUint32(f[12:], n)
		g, extra := newTry("mallory").digest(f)
		if g.OfVersionBefore() || extra == 0 {
			continue
		}
		lacks[extra&-extra] = true // its lowest bit that is not zero
		if f.Proves("mallory", g) {
			t.Fatalf("number %s proves %s, but the extra bits are %05x", f, g, extra)
		}
	}
}

// foundBefore founds a group like the version before: its ID has a mark, and nothing else is required of the digest.
func foundBefore(founder Peer) (Founding, Group) {
	for n := uint64(1); ; n++ {
		var f Founding
		binary.BigEndian.PutUint64(f[8:], n)
		if g := f.Group(founder); g.OfVersionBefore() {
			return f, g
		}
	}
}

// Groups of the version before are proven as before, and no ID of this version looks like theirs.
func TestGroupsOfTheVersionBeforeAreProvenAsBefore(t *testing.T) {
	f, g := foundBefore("amy")
	if !f.Proves("amy", g) || f.Proves("bob", g) {
		t.Errorf("the group %s of the version before is not proven by its founder alone", g)
	}
	for n := range 8 {
		if _, g := FoundFrom("amy", Founding{0: byte(n)}); g.OfVersionBefore() {
			t.Errorf("group %s could be claimed with a proof of the version before", g)
		}
	}
}

func BenchmarkFound(b *testing.B) {
	for b.Loop() {
		Found("12D3KooWNbXmmoznxXaRArq2f2kCmHvrwAfEA3X4CP1LbytmZC9V")
	}
}

func BenchmarkProves(b *testing.B) {
	f, g := Found("12D3KooWNbXmmoznxXaRArq2f2kCmHvrwAfEA3X4CP1LbytmZC9V")
	for b.Loop() {
		f.Proves("12D3KooWNbXmmoznxXaRArq2f2kCmHvrwAfEA3X4CP1LbytmZC9V", g)
	}
}
