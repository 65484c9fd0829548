package upload

import (
	"bytes"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"
)

func ids(info fs.FileInfo) (int, int) {
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}

// FuzzTree checks that no path and no link of an accepted tree leads outside, and that the tree can be encoded and
// parsed again.
func FuzzTree(f *testing.F) {
	f.Add([]byte(`{"entries":[{"path":"a","kind":"dir","mode":493},{"path":"a/l","kind":"link","target":"../b"},{"path":"b","kind":"file","mode":420}]}`))
	f.Add([]byte(`{"entries":[{"path":"../x","kind":"dir"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tree, err := ParseTree(text)
		if err != nil {
			return
		}
		for _, e := range tree.Entries {
			if path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || strings.HasPrefix(e.Path, "..") && (len(e.Path) == 2 || e.Path[2] == '/') {
				t.Fatalf("path %q was accepted", e.Path)
			}
			if to := path.Join(path.Dir(e.Path), e.Target); e.Kind == Link && (path.IsAbs(e.Target) || to == ".." || strings.HasPrefix(to, "../")) {
				t.Fatalf("link %q to %q was accepted", e.Path, e.Target)
			}
		}
		again, _, err := tree.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseTree(again); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 'x', 0, 0, 0, 0})
	buf := make([]byte, MaxChunk)
	f.Fuzz(func(t *testing.T, b []byte) {
		for r := bytes.NewReader(b); ; {
			data, err := ReadChunk(r, buf)
			if err != nil {
				break
			}
			if len(data) > len(b) {
				t.Fatal("a chunk is longer than the input")
			}
		}
		if refs, err := ParseRefs(b); err == nil && !bytes.Equal(EncodeRefs(refs), b) {
			t.Fatal("references differ after they were encoded again")
		}
	})
}
