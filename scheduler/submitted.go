package scheduler

// Job files as users submit them: their checks, their digests and what they cost.

import (
	"crypto/sha256"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

type digest [sha256.Size]byte

// checkSpec checks a spec and returns its digest. Two specs are equal if their digests are.
func checkSpec(s job.Spec) (digest, error) {
	if err := s.Validate(); err != nil {
		return digest{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	text, err := job.EncodeSpec(s)
	if err != nil {
		return digest{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(text) > job.MaxSpecBytes {
		return digest{}, fmt.Errorf("%w: the job file has %d bytes; at most %d", ErrInvalid, len(text), job.MaxSpecBytes)
	}
	return sha256.Sum256(text), nil
}

// digestOf returns the digest that checkSpec returned when the job was submitted.
func digestOf(j *state.Job) (digest, error) {
	if j.File != nil {
		return digest(j.File.Digest()), nil
	}
	return checkSpec(j.Spec)
}

// submitCosts returns what costOf returns, for a job that is not in the journal yet.
func submitCosts(s *job.Spec, tasks int) Amount {
	if bulk := s.Bulk(); bulk > job.MaxBulk {
		return costOf(s, tasks, bulk+s.LeanBytes())
	}
	return costOf(s, tasks, 0)
}
