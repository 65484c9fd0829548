package upload

// Trees, and the rules that every tree must obey.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Kind is the type of an entry.
type Kind string

// The kinds of entries.
const (
	File Kind = "file"
	Dir  Kind = "dir"
	Link Kind = "link"
)

// Entry is one file, directory or symbolic link.
type Entry struct {
	Path   string `json:"path"` // from the root of the tree, with slashes
	Kind   Kind   `json:"kind"`
	Mode   uint32 `json:"mode,omitempty"`  // permission bits, 0 to 0777
	MTime  int64  `json:"mtime,omitempty"` // of a file, in nanoseconds since 1970
	Size   int64  `json:"size,omitempty"`  // of a file, in bytes
	Chunks Refs   `json:"chunks,omitempty"`
	Target string `json:"target,omitempty"` // of a symbolic link
}

// Modified returns the modification time of a file.
func (e Entry) Modified() time.Time { return time.Unix(0, e.MTime) }

// Tree is a directory with everything below it. Entries are in the order of their paths, so a directory comes before
// its content.
type Tree struct {
	Entries []Entry `json:"entries"`
}

// Refs are the chunks of a file, in order. Their encoding is the hash and the length (big-endian) of each.
type Refs []Ref

const refBytes = 36

// MarshalJSON returns the encoding in base64.
func (r Refs) MarshalJSON() ([]byte, error) { return json.Marshal(r.bytes()) }

func (r Refs) bytes() []byte {
	b := make([]byte, 0, len(r)*refBytes)
	for _, c := range r {
		b = binary.BigEndian.AppendUint32(append(b, c.Hash[:]...), c.Size)
	}
	return b
}

// UnmarshalJSON parses the result of MarshalJSON.
func (r *Refs) UnmarshalJSON(text []byte) error {
	var b []byte
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	var err error
	*r, err = parseRefs(b)
	return err
}

func parseRefs(b []byte) (Refs, error) {
	if len(b)%refBytes != 0 {
		return nil, fmt.Errorf("blob: %d bytes of chunk names: %w", len(b), ErrInvalid)
	}
	refs := make(Refs, len(b)/refBytes)
	for i := range refs {
		at := b[i*refBytes:]
		copy(refs[i].Hash[:], at)
		refs[i].Size = binary.BigEndian.Uint32(at[len(refs[i].Hash):])
		if n := refs[i].Size; n == 0 || n > MaxChunk {
			return nil, fmt.Errorf("blob: chunk of %d bytes: %w: from 1 to %d", n, ErrInvalid, MaxChunk)
		}
	}
	return refs, nil
}

// Encode returns the encoding of a tree, on the wire and on disk, and its hash.
func (t Tree) Encode() ([]byte, Hash, error) {
	if err := t.valid(); err != nil {
		return nil, Hash{}, err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, Hash{}, fmt.Errorf("blob: encode tree: %w", err)
	}
	if len(b) > MaxTreeBytes {
		return nil, Hash{}, fmt.Errorf("blob: list of %d files: %w", len(t.Entries), ErrTooLarge)
	}
	return b, Sum(b), nil
}

// ParseTree parses a tree from outside and checks all of it.
func ParseTree(b []byte) (Tree, error) {
	var t Tree
	if len(b) > MaxTreeBytes {
		return t, fmt.Errorf("blob: tree of %d bytes: %w", len(b), ErrTooLarge)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return Tree{}, fmt.Errorf("blob: read tree: %w: %w", ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Tree{}, fmt.Errorf("blob: read tree: %w: data after its end", ErrInvalid)
	}
	return t, t.valid()
}

// Size returns the sum of all files, in bytes.
func (t Tree) Size() int64 {
	var n int64
	for _, e := range t.Entries {
		n += e.Size
	}
	return n
}

// Chunks returns the chunks of all files, each once, in the order of their first use.
func (t Tree) Chunks() []Ref {
	seen := map[Hash]bool{}
	var all []Ref
	for _, e := range t.Entries {
		for _, c := range e.Chunks {
			if !seen[c.Hash] {
				seen[c.Hash] = true
				all = append(all, c)
			}
		}
	}
	return all
}

func (t Tree) valid() error {
	if len(t.Entries) > maxEntries {
		return fmt.Errorf("blob: tree of %d files: %w: at most %d", len(t.Entries), ErrTooLarge, maxEntries)
	}
	dirs := map[string]bool{".": true}
	before, total := "", int64(0)
	for _, e := range t.Entries {
		if err := e.valid(); err != nil {
			return err
		}
		switch {
		case e.Path <= before:
			return fmt.Errorf("blob: path %.100q: %w: out of order, or twice", e.Path, ErrInvalid)
		case !dirs[path.Dir(e.Path)]:
			return fmt.Errorf("blob: path %.100q: %w: its directory is not in the tree", e.Path, ErrInvalid)
		}
		if e.Kind == Dir {
			dirs[e.Path] = true
		}
		before = e.Path
		if total += e.Size; total > maxTreeSize {
			return fmt.Errorf("blob: tree: %w: its files have over %d bytes", ErrTooLarge, int64(maxTreeSize))
		}
	}
	return nil
}

func (e Entry) valid() error {
	if err := checkPath(e.Path); err != nil {
		return err
	}
	wrong := func(what string) error {
		return fmt.Errorf("blob: %s %.100q: %w: %s", e.Kind, e.Path, ErrInvalid, what)
	}
	switch {
	case e.Mode&^uint32(fs.ModePerm) != 0:
		return wrong("its mode has more than permission bits")
	case e.Kind != Link && e.Target != "", e.Kind != File && (e.Size != 0 || len(e.Chunks) > 0):
		return wrong("it has fields of another kind")
	}
	switch e.Kind {
	case Dir:
		return nil
	case Link:
		return CheckLink(e.Path, e.Target)
	case File:
		left := e.Size
		for _, c := range e.Chunks {
			left -= int64(c.Size)
		}
		if left != 0 || e.Size < 0 {
			return wrong("its size is not the sum of its chunks")
		}
		return nil
	}
	return wrong("unknown kind")
}

// checkPath returns an error unless p is a clean relative path: no empty part, no "." or "..", no zero byte.
func checkPath(p string) error {
	if !fs.ValidPath(p) || p == "." || len(p) > maxPath || strings.ContainsRune(p, 0) ||
		slices.ContainsFunc(strings.Split(p, "/"), func(part string) bool { return len(part) > maxName }) {
		return fmt.Errorf("blob: path %.100q: %w: want a relative path, no dots", p, ErrInvalid)
	}
	return nil
}

// CheckLink returns an error unless a symbolic link at a path of a tree stays within the tree. Its target must be
// relative, and may use ".." only at its start and not beyond the root. The directories above a link are real
// directories, and every link that the target may pass through obeys the same rule, so no link leads outside.
func CheckLink(at, target string) error {
	outside := fmt.Errorf("blob: link %.100q to %.100q: %w: it leads outside the tree", at, target, ErrInvalid)
	if target == "" || len(target) > maxPath || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return outside
	}
	depth, named := strings.Count(at, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; named || depth < 0 {
				return outside
			}
		default:
			named = true
		}
	}
	return nil
}

// ByPath compares entries by path, which is the order of a tree.
func ByPath(a, b Entry) int { return strings.Compare(a.Path, b.Path) }
