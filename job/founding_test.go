package job

import (
	"math/rand/v2"
	"testing"
)

func TestOnlyTheFounderProvesAGroup(t *testing.T) {
	f, g := Found("amy")
	if !g.Founded() || !f.Proves("amy", g) {
		t.Fatalf("group %s, founding %s: not proven", g, f)
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
		t.Error("no founding proves a group")
	}
	if back, err := ParseFounding(f.String()); err != nil || back != f {
		t.Errorf("parsed %s: %s, %v", f, back, err)
	}
	for _, s := range []string{"00", f.String() + "00", "x" + f.String()[1:]} {
		if _, err := ParseFounding(s); err == nil {
			t.Errorf("%q was parsed", s)
		}
	}
}

// A group of an earlier version, whose ID was drawn at random, is not taken for one that needs a proof.
func TestDrawnGroupsAreNotFounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	n := 0
	for range 1 << 22 {
		if Group(r.Uint64()).Founded() {
			n++
		}
	}
	if n > 16 { // 4 are expected
		t.Errorf("%d of 2^22 drawn groups look founded", n)
	}
	for g := range Group(1000) {
		if g.Founded() {
			t.Errorf("group %d looks founded", uint64(g))
		}
	}
	var f Founding
	f[0] = 1
	if f.Proves("amy", newTry("amy").group(f)) {
		t.Error("a founding proves a group that is not marked as founded")
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
