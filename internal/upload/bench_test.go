package upload

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkUnpack measures the last step of an upload, of 2,000 files of 50 kB.
func BenchmarkUnpack(b *testing.B) {
	s := newStore(b, Config{})
	t := Tree{}
	for i := range 2000 {
		r := put(b, s, random(i, 50_000))[0]
		t.Entries = append(t.Entries, Entry{Path: fmt.Sprintf("f%06d", i), Kind: File, Mode: 0o644, MTime: 1e18, Size: 50_000, Chunks: Refs{r}})
	}
	b.SetBytes(t.Size())
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		to := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(to, 0o700); err != nil {
			b.Fatal(err)
		}
		if err := s.Unpack(b.Context(), t, to, nil); err != nil {
			b.Fatal(err)
		}
	}
}
