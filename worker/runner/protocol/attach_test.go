package protocol

import (
	"bytes"
	"io"
	"testing"
)

func TestInputFramesAreBounded(t *testing.T) {
	var wire bytes.Buffer
	for _, err := range []error{
		WriteInput(&wire, InputBytes, []byte("words")), WriteInput(&wire, InputSize, SizeBytes(31, 97)), WriteInput(&wire, InputEnd, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if WriteInput(io.Discard, InputBytes, make([]byte, MaxInput+1)) == nil {
		t.Error("a frame beyond the bound was written")
	}
	buf := make([]byte, MaxInput)
	for _, want := range []struct {
		kind byte
		text string
	}{{InputBytes, "words"}, {InputSize, "\x00\x1f\x00\x61"}, {InputEnd, ""}} {
		kind, p, err := ReadInput(&wire, buf)
		if err != nil || kind != want.kind || string(p) != want.text {
			t.Errorf("%d %q %v, want %d %q", kind, p, err, want.kind, want.text)
		}
	}
	if rows, cols := SizeOf(SizeBytes(31, 97)); rows != 31 || cols != 97 {
		t.Errorf("%d x %d, want 31 and 97", rows, cols)
	}
	if rows, cols := SizeOf([]byte("abc")); rows != 0 || cols != 0 {
		t.Errorf("of 3 bytes: %d x %d, want 0 and 0", rows, cols)
	}
}

// No bytes make a reader panic, or read more than the bound.
func FuzzReadInput(f *testing.F) {
	f.Add([]byte{InputBytes, 0, 0, 0, 2, 'a', 'b'})
	f.Add([]byte{InputSize, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{InputEnd, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r, buf := bytes.NewReader(wire), make([]byte, MaxInput)
		for {
			kind, p, err := ReadInput(r, buf)
			if err != nil {
				return
			}
			if len(p) > MaxInput {
				t.Errorf("%d bytes of kind %d, want at most %v", len(p), kind, MaxInput)
			}
		}
	})
}
