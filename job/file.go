package job

// A job file as it travels: its encoding on the wire and on disk, and its digest. It is encoded once.

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
)

// Digest identifies the content of a job file. Two files with the same digest are the same.
type Digest [sha256.Size]byte

// File is a job file that does not change any more. Tasks with the same file share one value.
type File struct {
	spec Spec
	text []byte
	sum  Digest

	checked sync.Once
	invalid error
	strange string // see StrangeFile
}

// NewFile encodes a spec. Nothing that the spec refers to may change afterwards.
func NewFile(s Spec) (*File, error) {
	text, err := EncodeSpec(s)
	if err != nil {
		return nil, err
	}
	return FileOf(s, text)
}

// FileOf returns the file of a spec that was decoded from this text. A text of more than MaxSpecBytes is an error.
func FileOf(s Spec, text []byte) (*File, error) {
	if len(text) > MaxSpecBytes {
		return nil, fmt.Errorf("the job file has %d bytes; at most %d", len(text), MaxSpecBytes)
	}
	return &File{spec: s, text: text, sum: sha256.Sum256(text)}, nil
}

// StrangeFile returns the file of a job that this version cannot run, because a later version wrote something into its
// text that this version does not know. why tells people what. Its Spec is empty, and it counts as valid.
func StrangeFile(text []byte, why string) *File {
	return &File{text: text, sum: sha256.Sum256(text), strange: why}
}

// Strange returns why this version cannot run the job; empty if it can.
func (f *File) Strange() string { return f.strange }

// Spec returns the job. It is the zero Spec for a nil File.
func (f *File) Spec() Spec {
	if f == nil {
		return Spec{}
	}
	return f.spec
}

// Validate is Spec.Validate. It costs nothing after the first call.
func (f *File) Validate() error {
	if f.strange != "" {
		return nil
	}
	f.checked.Do(func() { f.invalid = f.spec.Validate() })
	return f.invalid
}

// Text returns the encoded job file. It must not be changed.
func (f *File) Text() []byte { return f.text }

// Digest returns the digest of the text.
func (f *File) Digest() Digest { return f.sum }

// maxTaskArray bounds the text of an array in the file of its tasks, which is sent to each node. Usual arrays are
// shorter.
const maxTaskArray = 256

// TaskFile returns the file that all tasks of a job have in common: the spec without what only its owner needs.
func (s Spec) TaskFile() (*File, error) {
	if !s.SlurmEnv || len(s.EachLine) > 0 || len(s.Array) > maxTaskArray { // Slurm's variables describe the array
		s.Array = ""
	}
	s.EachLine, s.Dependency, s.KillOnInvalidDep, s.Begin, s.Project, s.DefaultTime, s.MaxFailures = nil, nil, false, nil, "", false, 0
	return NewFile(s)
}

// EncodeSpec returns the job file as JSON, as daemons send and store it: messages and records have it as a field of
// bytes. So a new field of a spec changes one struct, and no protobuf message has to be kept in step with it by hand.
// MaxSpecBytes bounds the length of this text.
// The characters <, > and & are not escaped, because scripts contain many of them.
func EncodeSpec(s Spec) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
