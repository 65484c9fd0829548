package step

// Job files as users submit them: their checks, their digests and what they cost.

import (
	"crypto/sha256"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

// Digest is the SHA-256 of an encoded spec.
type Digest [sha256.Size]byte

// CheckSpec checks a spec and returns its digest. Two specs are equal if their digests are.
func CheckSpec(s job.Spec) (Digest, error) {
	if err := s.Validate(); err != nil {
		return Digest{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	text, err := job.EncodeSpec(s)
	if err != nil {
		return Digest{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(text) > job.MaxSpecBytes {
		return Digest{}, fmt.Errorf("%w: the job file has %d bytes; at most %d", ErrInvalid, len(text), job.MaxSpecBytes)
	}
	return sha256.Sum256(text), nil
}

// DigestOf returns the digest that CheckSpec returned when the job was submitted.
func DigestOf(j *state.Job) (Digest, error) {
	if j.File != nil {
		return Digest(j.File.Digest()), nil
	}
	return CheckSpec(j.Spec)
}
