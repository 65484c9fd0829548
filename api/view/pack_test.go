package view

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

var typical = []byte(`{"schema":"job/v1","id":"","name":"","state":"RUNNING","submitted_at":"2027-01-15T08:00:00Z","tasks":[{"pid":0,"gpus":["GPU-"]}]}`)

// both returns the packed text, for everybody and for those who may see more.
func both(p *Packer, packed []byte) (text, more string) {
	return string(p.Append([]byte("a"), packed, false)), string(p.Append([]byte("b"), packed, true))
}

func TestPackKeepsBothTexts(t *testing.T) {
	p := NewPacker(typical)
	long := make([]byte, 3*packWindow) // nothing in it occurs twice
	for i := range long {
		long[i] = byte(rand.Uint32()) //nolint:gosec // no secret
	}
	for _, text := range [][]byte{nil, {}, {0}, []byte("x"), typical, bytes.Repeat(typical, 1000), long} {
		for _, more := range [][]byte{nil, []byte("y"), typical, append([]byte("more"), text...), long} {
			want := string(more)
			if more == nil {
				want = string(text)
			}
			packed := p.Pack(text, more)
			if got, gotMore := both(p, packed); got != "a"+string(text) || gotMore != "b"+want || Length(packed) != len(text) {
				t.Errorf("%.20q and %.20q: got %.20q and %.20q, length %d, want both with their prefix, length %d", text, more, got, gotMore, Length(packed), len(text))
			}
		}
	}
	if p.work != nil && cap(p.work) > keepWork {
		t.Errorf("got %d bytes kept for the next text, want at most %d", cap(p.work), keepWork)
	}
}

// Adding a text to a large one costs as much as to a small one, and the buffer grows as append does, not each time.
func TestAppendToALargeTextIsCheap(t *testing.T) {
	p := NewPacker(typical)
	packed := p.Pack(typical, append([]byte("more"), typical...))
	b := make([]byte, maxUnpacked+1)
	begin, grown := len(b), 0
	for range 10_000 {
		before := cap(b)
		b = p.Append(b, packed, true)
		if cap(b) != before {
			grown++
		}
	}
	if want := 10_000 * (len(typical) + len("more")); len(b)-begin != want || grown > 20 {
		t.Errorf("got %d bytes added, want %d; the buffer has grown %d times, want at most 20", len(b)-begin, want, grown)
	}
	if !bytes.HasSuffix(b, typical) || !bytes.HasPrefix(b[begin:], append([]byte("more"), typical...)) {
		t.Error("other texts were added")
	}
}

// A packed text has the sum of the text.
func TestPackedTextHasTheSumOfTheText(t *testing.T) {
	p := NewPacker(typical)
	for _, more := range [][]byte{nil, []byte("y"), typical} {
		packed := p.Pack([]byte("x"), more)
		for _, all := range []bool{false, true} {
			if text := p.Append(nil, packed, all); SumOf(packed, all) != Sum(text) {
				t.Errorf("%q has another sum", text)
			}
		}
	}
	if SumOf(p.Pack([]byte("x"), []byte("y")), true) == SumOf(p.Pack([]byte("x"), []byte("y")), false) {
		t.Error("both texts have the same sum")
	}
}

// Packed texts are equal only if both texts are.
func TestPackedTextsAreEqualIfBothTextsAre(t *testing.T) {
	p := NewPacker(typical)
	one := p.Pack([]byte("x"), []byte("y"))
	for _, c := range []struct {
		text, more string
		same       bool
	}{{"x", "y", true}, {"x", "z", false}, {"z", "y", false}, {"xy", "", false}} {
		more := []byte(c.more)
		if c.more == "" {
			more = nil
		}
		if Same(one, p.Pack([]byte(c.text), more)) != c.same {
			t.Errorf("Same for %q and %q: want %t", c.text, c.more, c.same)
		}
	}
}

// A text that is packed to nearly nothing counts with a part of its length on a shelf.
func TestRowsOfEmptyTextsCountWithTheirLength(t *testing.T) {
	r := Row{Packed: NewPacker(typical).Pack(make([]byte, 64<<10), nil)}
	if len(r.Packed) > 1<<10 || r.Size() < 4<<10 {
		t.Errorf("got %d packed bytes that count as %d, want at most 1 KiB and at least 4 KiB", len(r.Packed), r.Size())
	}
}

// Two texts of one object take little more than one, and one takes little more than its difference from the typical
// text.
func TestPackedTextsAreSmall(t *testing.T) {
	p := NewPacker(typical)
	text := fmt.Appendf(nil, `{"schema":"job/v1","id":"%d","name":"","state":"RUNNING","submitted_at":"2027-01-15T08:00:00Z","tasks":[{"pid":0,"gpus":["GPU-"]}]}`, 1234567890)
	more := bytes.Replace(text, []byte(`"pid":0`), []byte(`"pid":4711`), 1)
	one, two := len(p.Pack(text, nil)), len(p.Pack(text, more))
	if one > 48 || two > one+20 {
		t.Errorf("a text of %d bytes takes %d, two take %d, want at most 48 and 20 more", len(text), one, two)
	}
}

// Bytes that are no packed text, which only a defect produces, are treated as an empty text.
func FuzzAppend(f *testing.F) {
	p := NewPacker(typical)
	f.Add(p.Pack(typical, nil))
	f.Add(p.Pack([]byte("x"), typical))
	f.Add([]byte{})
	f.Add([]byte("0(\xb5/\xfd\x0100"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		for _, more := range []bool{false, true} {
			if got := p.Append([]byte("a"), packed, more); len(got) == 0 || got[0] != 'a' {
				t.Errorf("got %.20q, want at least the first letter", got)
			}
			_, _ = Length(packed), SumOf(packed, more)
		}
	})
}

// A Packer can be used concurrently.
func TestPackerIsSafeForConcurrentUse(t *testing.T) {
	p := NewPacker(typical)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 200 {
				text := fmt.Appendf(nil, "%s %d %d", typical, n, i)
				if got, _ := both(p, p.Pack(text, nil)); got != "a"+string(text) {
					t.Errorf("got %q, want %q", got, text)
				}
			}
		})
	}
	all.Wait()
}
