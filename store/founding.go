package store

// The journal group for the jobs that this daemon accepts.

import (
	"fmt"

	"github.com/musterhq/muster/job"
)

const foundingPrefix = "m/founding/"

// Group returns the id of the journal group that earlier versions founded in this store. Nothing proves whose it is.
func (s *Store) Group() job.Group { return job.Group(s.Derive("group", 1)) }

// Home returns the journal group for the jobs that this daemon accepts, and the proof that the daemon has founded it. It
// founds the group if the daemon has none.
func (s *Store) Home(founder job.Peer) (job.Group, job.Founding, error) {
	key := []byte(foundingPrefix + string(founder))
	v, err := s.Read(key)
	if err != nil {
		return 0, job.Founding{}, fmt.Errorf("store: read the founding of the journal group: %w", err)
	}
	var f job.Founding
	if v != nil {
		if len(v) != len(f) {
			return 0, f, fmt.Errorf("store: the founding of the journal group has %d bytes, want %d", len(v), len(f))
		}
		copy(f[:], v)
		return f.Group(founder), f, nil
	}
	f, g := job.Found(founder)
	if err := s.WriteSync(func(b Batch) error { return b.Set(key, f[:]) }); err != nil {
		return 0, f, fmt.Errorf("store: write the founding of the journal group: %w", err)
	}
	return g, f, nil
}

// Earlier returns the journal group of an earlier version in this store, which has jobs and no proof; 0 if there is none.
func (s *Store) Earlier() (job.Group, error) {
	g := s.Group()
	has, err := s.hasAny([]byte("r/" + g.String() + "/"))
	if err != nil {
		return 0, fmt.Errorf("store: look for the journal group of an earlier version: %w", err)
	}
	if !has {
		return 0, nil
	}
	return g, nil
}

// hasAny reports whether there is a key with this prefix.
func (s *Store) hasAny(prefix []byte) (found bool, err error) {
	err = s.ReadPrefix(prefix, func(_, _ []byte) error {
		found = true
		return ErrStop
	})
	return found, err
}
