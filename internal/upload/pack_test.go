package upload

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// onWire encodes chunks as they are sent over the network.
func onWire(chunks ...[]byte) []byte {
	var b []byte
	for _, c := range chunks {
		b = append(AppendHead(b, uint32(len(c))), c...)
	}
	return b
}

func packsOf(t *testing.T, s *Store) []string {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(s.cfg.Dir, "packs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return packs
}

func TestManyChunksShareFewPacks(t *testing.T) {
	s := newStore(t, Config{})
	var chunks [][]byte
	for i := range 2*MaxAsk + 1 {
		chunks = append(chunks, random(i, 20))
	}
	chunks = append(chunks, chunks[0]) // the first chunk again
	if err := s.PutAll(bytes.NewReader(onWire(chunks...)), "ann"); err != nil {
		t.Fatal(err)
	}
	if n := len(packsOf(t, s)); n != 3 {
		t.Errorf("got %d packs, want 3", n)
	}
	for _, again := range []*Store{s, NewStore(s.cfg, s.log)} {
		for _, c := range chunks {
			got, err := again.Append(nil, Ref{Sum(c), uint32(len(c))})
			if err != nil || !bytes.Equal(got, c) {
				t.Fatalf("got %x, %v; want %x", got, err, c)
			}
		}
	}
	if err := s.PutAll(bytes.NewReader(onWire(chunks...)), "ann"); err != nil || len(packsOf(t, s)) != 3 {
		t.Errorf("the second time: got %d packs, %v, want 3", len(packsOf(t, s)), err)
	}
	if left, err := os.ReadDir(filepath.Join(s.cfg.Dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("left behind: got %v, %v, want nothing", left, err)
	}
}

func TestPutAllKeepsCompleteChunks(t *testing.T) {
	a, b := random(1, 100), random(2, 100)
	whole := onWire(a, b)
	for _, cut := range []int{104, 106, 108, 207} {
		s := newStore(t, Config{})
		err := s.PutAll(io.MultiReader(bytes.NewReader(whole[:cut]), broken{}), "ann")
		if !errors.Is(err, ErrInvalid) || !errors.Is(err, errBroken) {
			t.Errorf("cut at %d: got %v, want ErrInvalid and errBroken", cut, err)
		}
		missing, err := s.Missing([]Ref{{Sum(a), 100}, {Sum(b), 100}})
		if err != nil || len(missing) != 1 || missing[0].Hash != Sum(b) {
			t.Errorf("cut at %d: missing %v, %v, want the second chunk", cut, missing, err)
		}
	}
	s := newStore(t, Config{})
	if err := s.PutAll(bytes.NewReader(onWire(a, nil)), "ann"); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty chunk: got %v, want ErrInvalid", err)
	}
}

// broken is a connection that breaks at once.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

func TestBrokenPackIsDropped(t *testing.T) {
	for name, corrupted := range map[string]func([]byte) []byte{
		"empty":      func([]byte) []byte { return nil },
		"cut":        func(b []byte) []byte { return b[:len(b)-50] },
		"zeros":      func(b []byte) []byte { return make([]byte, len(b)) },
		"count + 1":  func(b []byte) []byte { b[len(b)-1]++; return b },
		"huge count": func(b []byte) []byte { copy(b[len(b)-4:], "\xff\xff\xff\xff"); return b },
		"extra bytes": func(b []byte) []byte {
			return slices.Concat([]byte("x"), b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, Config{})
			fine, bad := put(t, s, random(1, 100))[0], put(t, s, random(2, 100), random(3, 100))
			path := s.packs.path(s.packs.index[bad[0].Hash].pack.name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, corrupted(text), 0o600); err != nil {
				t.Fatal(err)
			}
			again := NewStore(s.cfg, s.log)
			missing, err := again.Missing([]Ref{bad[0], fine, bad[1]})
			if err != nil || !slices.Equal(missing, bad) {
				t.Errorf("missing: got %v, %v, want %v", missing, err, bad)
			}
			if n := len(packsOf(t, s)); n != 1 {
				t.Errorf("got %d packs, want 1", n)
			}
		})
	}
}

func TestChunksOfRemovedPackAreMissing(t *testing.T) {
	s := newStore(t, Config{})
	refs := put(t, s, random(1, 100), random(2, 100))
	if err := os.Remove(packsOf(t, s)[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(nil, refs[0]); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
	if missing, err := s.Missing(refs); err != nil || len(missing) != 2 {
		t.Errorf("missing: got %v, %v, want 2", missing, err)
	}
	if n, err := s.Size(); n != 0 || err != nil {
		t.Errorf("size: got %d, %v, want 0", n, err)
	}
}

func TestPruneMovesKeptChunksOutOfHalfEmptyPacks(t *testing.T) {
	s := newStore(t, Config{})
	mostly, half, none := [][]byte{random(1, 9000), random(2, 10)}, [][]byte{random(3, 5000), random(4, 5000)}, [][]byte{random(5, 100)}
	kept := map[Hash]bool{}
	for i, chunks := range [][][]byte{mostly, half, none} {
		refs := put(t, s, chunks...)
		if i < 2 {
			kept[refs[0].Hash] = true
		}
	}
	now := time.Now()
	if err := s.pruneChunks(kept, now); err != nil || len(packsOf(t, s)) != 3 {
		t.Fatalf("while the packs are young: got %d packs, %v, want 3", len(packsOf(t, s)), err)
	}
	age(t, s, 2*minAge)
	if err := s.pruneChunks(kept, now); err != nil {
		t.Fatal(err)
	}
	fresh := NewStore(s.cfg, s.log)
	for _, s := range []*Store{s, fresh} {
		missing, err := s.Missing([]Ref{{Sum(mostly[0]), 9000}, {Sum(mostly[1]), 10}, {Sum(half[0]), 5000}, {Sum(half[1]), 5000}, {Sum(none[0]), 100}})
		if err != nil || len(missing) != 2 || missing[0].Hash != Sum(half[1]) || missing[1].Hash != Sum(none[0]) {
			t.Errorf("missing: got %v, %v, want two chunks", missing, err)
		}
		if got, err := s.Append(nil, Ref{Sum(half[0]), 5000}); err != nil || !bytes.Equal(got, half[0]) {
			t.Errorf("the chunk that was moved: got error %v, want its bytes", err)
		}
	}
	a, err := s.Size()
	b, again := fresh.Size()
	if a != b || a > 9010+5000+3*refBytes+2*countBytes || err != nil || again != nil {
		t.Errorf("counted %d, %d after a restart, %v, %v, want the same, within the bound", a, b, err, again)
	}
}

// TestTreeIsSyncedWithItsChunks checks that a tree is synced together with the packs of all its chunks, whoever
// uploaded them.
func TestTreeIsSyncedWithItsChunks(t *testing.T) {
	s := newStore(t, Config{})
	one, two := put(t, s, random(1, 5000))[0], put(t, s, random(2, 5000))[0]
	other := put(t, s, random(3, 5000))[0]
	tree := Tree{Entries: []Entry{{Path: "a", Kind: File, Size: 10_000, Chunks: Refs{one, two}}}}
	text, _, err := tree.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.storeTree(Sum(text), tree, text, ""); err != nil || len(s.packs.unsynced([]Ref{one, two, other})) != 3 {
		t.Fatalf("PutTree without sync = %v, with %d packs to sync, want 3", err, len(s.packs.unsynced([]Ref{one, two, other})))
	}
	uploadAs(t, s, "ann", random(1, 5000), random(2, 5000)) // the store has both already
	if _, _, err := s.PutTree(text, "ann"); err != nil {
		t.Fatal(err)
	}
	if left := s.packs.unsynced([]Ref{one, two, other}); len(left) != 1 || left[0].refs[0] != other {
		t.Errorf("after PutTree with sync: got %d packs to sync, want only that of a chunk of no tree", len(left))
	}

	// The writes of an earlier process may not have reached the disk.
	again := NewStore(s.cfg, s.log)
	if _, err := again.Missing(nil); err != nil || len(again.packs.unsynced([]Ref{one})) != 1 {
		t.Errorf("the next process does not sync what it finds: %v", err)
	}
	if err := os.Remove(again.packs.path(again.packs.unsynced([]Ref{two})[0].name)); err != nil {
		t.Fatal(err)
	}
	uploadAs(t, again, "ann", random(1, 5000), random(2, 5000)) // the index has both
	if _, _, err := again.PutTree(text, "ann"); !errors.Is(err, ErrMissing) {
		t.Errorf("PutTree of a tree with a missing pack = %v, want ErrMissing", err)
	}
	if missing, err := again.Missing([]Ref{one, two}); err != nil || len(missing) != 1 || missing[0] != two {
		t.Errorf("missing: got %v, %v, want the chunk of that pack", missing, err)
	}
}
