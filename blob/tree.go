package blob

// The list of a tree's files, and the rules that keep it a tree.

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

// Kind is what an entry is.
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
	Target string `json:"target,omitempty"` // of a link
}

// Modified is when the file was written last.
func (e Entry) Modified() time.Time { return time.Unix(0, e.MTime) }

// Tree is a directory with all below it, the entries in the order of their
// paths. Directories come before what is in them.
type Tree struct {
	Entries []Entry `json:"entries"`
}

// Refs are chunks in the order in which they make a file. Their encoding is
// hash and length (big-endian) one after the other.
type Refs []Ref

const refBytes = 36

// MarshalJSON gives the encoding as base64.
func (r Refs) MarshalJSON() ([]byte, error) { return json.Marshal(r.bytes()) }

func (r Refs) bytes() []byte {
	b := make([]byte, 0, len(r)*refBytes)
	for _, c := range r {
		b = binary.BigEndian.AppendUint32(append(b, c.Hash[:]...), c.Size)
	}
	return b
}

// UnmarshalJSON reads what MarshalJSON wrote.
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

// Encode gives the form in which a tree travels and is kept, and its name.
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

// ParseTree reads a tree that came from outside and checks all of it.
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
		return Tree{}, fmt.Errorf("blob: read tree: %w: something follows it", ErrInvalid)
	}
	return t, t.valid()
}

// Size is the sum of all files, in bytes.
func (t Tree) Size() int64 {
	var n int64
	for _, e := range t.Entries {
		n += e.Size
	}
	return n
}

// Chunks are the chunks that the tree is made of, each once, in the order of
// their first use.
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
		return wrong("its mode has more than permissions")
	case e.Kind != Link && e.Target != "", e.Kind != File && (e.Size != 0 || len(e.Chunks) > 0):
		return wrong("it has what belongs to another kind")
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
			return wrong("its chunks are not as long as it is")
		}
		return nil
	}
	return wrong("no such kind")
}

// checkPath wants a plain relative path: no empty or dotted part, no zero byte.
func checkPath(p string) error {
	if !fs.ValidPath(p) || p == "." || len(p) > maxPath || strings.ContainsRune(p, 0) ||
		slices.ContainsFunc(strings.Split(p, "/"), func(part string) bool { return len(part) > maxName }) {
		return fmt.Errorf("blob: path %.100q: %w: want a relative path, no dots", p, ErrInvalid)
	}
	return nil
}

// CheckLink says whether a symbolic link at a path of a tree stays within the
// tree: its target is relative, and steps up only at its start and not beyond
// the root. As the directories above a link are real ones, and every link it
// may lead to obeys the same rule, none leads outside.
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

// ByPath orders entries as a tree wants them.
func ByPath(a, b Entry) int { return strings.Compare(a.Path, b.Path) }
