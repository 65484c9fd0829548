package upload

import (
	"bytes"
	"errors"
	"testing"
)

// fill uploads chunks as a user until the store refuses one. It returns the number of accepted bytes.
func fill(t *testing.T, s *Store, user string, seed int) int {
	t.Helper()
	const chunk = 100 << 10
	for n := range 1000 {
		err := s.PutAll(bytes.NewReader(onWire(random(seed+n, chunk))), user)
		if errors.Is(err, ErrFull) {
			return n * chunk
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the store has no bound")
	return 0
}

func TestOneUserCannotFillStore(t *testing.T) {
	const most = 9 << 20
	s := newStore(t, Config{Most: most})
	ann := fill(t, s, "ann", 0)
	if ann < most*8/10 || ann > most*8/9 {
		t.Errorf("ann alone: got %d of %d bytes, want eight ninths", ann, most)
	}
	ben := fill(t, s, "ben", 1000)
	if ben < most*8/10/10 {
		t.Errorf("then ben: got %d bytes, want most of the rest", ben)
	}
	if carl := fill(t, s, "carl", 2000); carl == 0 {
		t.Error("then carl: got nothing, want some bytes")
	}

	// The owners of uploads are known after a restart.
	again := NewStore(s.cfg, s.log)
	size, err := again.Size()
	if before, _ := s.Size(); err != nil || size != before {
		t.Errorf("after a restart: got %d bytes, %v; want %d", size, err, before)
	}
	if more := fill(t, again, "ann", 3000); more != 0 {
		t.Errorf("after a restart ann: got %d more bytes, want 0", more)
	}
	for _, p := range again.packs.all {
		again.packs.drop(p)
	}
	if len(again.quota.usage) != 0 || again.quota.total() != 0 {
		t.Errorf("an empty store: got %d bytes, of %v, want 0", again.quota.total(), again.quota.usage)
	}
}

// TestTreesCountAgainstTheQuota checks that the lists of files of trees count against the quota, like chunks.
func TestTreesCountAgainstTheQuota(t *testing.T) {
	s := newStore(t, Config{Most: 1 << 20})
	var err error
	for n := range 1000 {
		tree := Tree{}
		for i := range 1000 {
			tree.Entries = append(tree.Entries, Entry{Path: string([]byte{byte('a' + n/26%26), byte('a' + n%26), byte('a' + i/100), byte('a' + i/10%10), byte('a' + i%10)}), Kind: Dir})
		}
		text, _, encoding := tree.Encode()
		if encoding != nil {
			t.Fatal(encoding)
		}
		if _, _, err = s.PutTree(text, "ann"); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("1,000 trees: got %v, want ErrFull", err)
	}
}
