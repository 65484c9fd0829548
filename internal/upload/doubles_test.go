package upload

import (
	"bytes"
	"errors"
	"testing"
)

// uploadAs sends chunks as a user.
func uploadAs(t *testing.T, s *Store, user string, chunks ...[]byte) {
	t.Helper()
	var body []byte
	for _, c := range chunks {
		body = append(AppendHead(body, uint32(len(c))), c...) //nolint:gosec // at most MaxChunk
	}
	if err := s.PutAll(bytes.NewReader(body), user); err != nil {
		t.Fatal(err)
	}
}

// TestMissingRevealsNothingOfOthers checks that a user learns which chunks that user has uploaded, and nothing else:
// neither by asking nor by naming them in a tree.
func TestMissingRevealsNothingOfOthers(t *testing.T) {
	s := newStore(t, Config{})
	data := random(1, 5000)
	ref := Ref{Hash: Sum(data), Size: 5000}
	missing := func(s *Store, user string) bool {
		t.Helper()
		list, err := s.MissingOf(user, []Ref{ref})
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == 1
	}
	tree := Tree{Entries: []Entry{{Path: "a", Kind: File, Size: 5000, Chunks: Refs{ref}}}}
	text, _, err := tree.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !missing(s, "ann") {
		t.Error("a chunk that nobody has uploaded is not missing")
	}
	uploadAs(t, s, "ann", data)
	if missing(s, "ann") || !missing(s, "eve") {
		t.Errorf("missing for ann, who uploaded it: got %v, for eve: %v, want false, true", missing(s, "ann"), missing(s, "eve"))
	}
	if _, _, err := s.PutTree(text, "eve"); !errors.Is(err, ErrMissing) {
		t.Errorf("eve makes a tree with ann's chunk: got %v, want ErrMissing", err)
	}
	if size, err := s.Size(); err != nil || size > 6000 {
		t.Errorf("got %d bytes, %v, want at most 6000", size, err)
	}
	uploadAs(t, s, "eve", data)
	if missing(s, "eve") {
		t.Error("a chunk that eve has uploaded, too, is missing for her")
	}
	if _, _, err := s.PutTree(text, "eve"); err != nil {
		t.Errorf("eve makes a tree with what she has uploaded: got %v, want no error", err)
	}
	if size, err := s.Size(); err != nil || size > 6000 {
		t.Errorf("the chunk is stored twice: got %d bytes, %v, want at most 6000", size, err)
	}
	again := NewStore(s.cfg, s.log)
	if missing(again, "ann") || !missing(again, "eve") {
		t.Error("after a restart: want that the first user who uploaded a chunk is known, and that others upload it again")
	}
}

// TestRememberedDoublesAreBounded checks that however many chunks users send twice, at most two generations are
// remembered, with the newest.
func TestRememberedDoublesAreBounded(t *testing.T) {
	var d doubles
	chunk := func(n int) (h Hash) {
		h[0], h[1], h[2], h[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
		return h
	}
	const all = 3*maxDoubles + 5
	for n := range all {
		d.note("eve", chunk(n))
	}
	if len(d.newer)+len(d.old) > 2*maxDoubles || !d.has("eve", chunk(all-1)) || !d.has("eve", chunk(all-maxDoubles)) || d.has("eve", chunk(0)) || d.has("ann", chunk(all-1)) {
		t.Errorf("got %d and %d remembered, want the newest ones of eve, up to the bound", len(d.newer), len(d.old))
	}
}
