package state

// The job file of a job that has much bulk: it lies on disk, apart from the other rows.
// See docs/adr, ADR 123.

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

// ErrDamaged means that the job file on disk is missing, or is not the one that was submitted.
var ErrDamaged = errors.New("its job file on disk is missing or damaged")

// File says which job file a job has on disk. Only the jobs whose file is large have one; see job.MaxBulk. A nil File
// has no text.
type File struct {
	sum   job.Digest
	size  int
	text  []byte // nil once it is on disk; see Drop
	dirty bool   // TakeRows has not returned it yet
}

// Size returns the length of the text.
func (f *File) Size() int {
	if f == nil {
		return 0
	}
	return f.size
}

// Digest returns the digest of the text.
func (f *File) Digest() job.Digest { return f.sum }

// Text returns the text, or nil if it is only on disk. It must not be changed.
func (f *File) Text() []byte {
	if f == nil {
		return nil
	}
	return f.text
}

// Drop frees the text that TakeRows has returned. It must be on disk by now.
func (f *File) Drop() {
	if f != nil && !f.dirty {
		f.text = nil
	}
}

// keep returns the spec that stays in memory, and the file that goes to disk. A small job file stays in memory whole;
// then the File is nil.
func keep(s job.Spec) (job.Spec, *File) {
	if s.Bulk() <= job.MaxBulk {
		return s, nil
	}
	text, err := job.EncodeSpec(s)
	if err != nil {
		return s, nil // TakeRows returns this error
	}
	return s.Lean(), &File{sum: sha256.Sum256(text), size: len(text), text: bytes.Clone(text), dirty: true}
}

// OpenFile decodes the text of a job file. It returns ErrDamaged if the text does not have this digest.
func OpenFile(sum job.Digest, text []byte) (job.Spec, error) {
	if len(text) == 0 || sha256.Sum256(text) != sum {
		return job.Spec{}, ErrDamaged
	}
	return DecodeFile(text)
}

// DecodeFile decodes the text of a job file, or returns ErrDamaged.
func DecodeFile(text []byte) (job.Spec, error) {
	s, err := storepb.DecodeSpec(text)
	if err != nil {
		return job.Spec{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return s, nil
}

// row appends the row of the file to rows, if TakeRows has not returned it before.
func (f *File) row(id job.ID, rows []job.Row) []job.Row {
	if f == nil || !f.dirty {
		return rows
	}
	f.dirty = false
	return append(rows, job.Row{Job: id, Part: job.PartFile, Data: f.text})
}
