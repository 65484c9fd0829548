package store

// The journal groups for the jobs that this daemon accepts.

import (
	"fmt"

	"github.com/musterhq/muster/job"
)

const (
	foundingPrefix       = "m/founded/"
	foundingBeforePrefix = "m/founding/" // of the version before: see job.Group.OfVersionBefore
)

// Home is a journal group of this daemon, and the proof that the daemon has founded it.
type Home struct {
	Group    job.Group
	Founding job.Founding
}

// Group returns the id of the journal group that versions without foundings had in this store. Nothing proves whose
// group it is.
func (s *Store) Group() job.Group { return job.Group(s.Derive("group", 1)) }

// Homes returns the journal groups of this daemon. The last is the group for the jobs that it accepts; Homes founds it
// if there is none. The group of the previous version comes before it, if that group has jobs here.
func (s *Store) Homes(founder job.Peer) ([]Home, error) {
	if err := refuseDrawn(s); err != nil {
		return nil, err
	}
	var homes []Home
	before, err := home(s, foundingBeforePrefix, founder)
	if err != nil {
		return nil, err
	}
	if before.Group != 0 {
		has, err := s.hasAny([]byte("r/" + before.Group.String() + "/"))
		if err != nil {
			return nil, fmt.Errorf("store: look for the jobs of the version before: %w", err)
		}
		if has {
			homes = append(homes, before)
		}
	}
	own, err := home(s, foundingPrefix, founder)
	if err != nil {
		return nil, err
	}
	if own.Group == 0 {
		own.Founding, own.Group = job.Found(founder)
		if err := s.WriteSync(func(b Batch) error { return b.Set([]byte(foundingPrefix+string(founder)), own.Founding[:]) }); err != nil {
			return nil, fmt.Errorf("store: write the founding of the journal group: %w", err)
		}
	}
	return append(homes, own), nil
}

// home reads a group that the founder has founded; its ID is 0 if there is none.
func home(s *Store, prefix string, founder job.Peer) (h Home, err error) {
	v, err := s.Read([]byte(prefix + string(founder)))
	if err != nil {
		return h, fmt.Errorf("store: read the founding of the journal group: %w", err)
	}
	if v == nil {
		return h, nil
	}
	if len(v) == len(h.Founding) {
		copy(h.Founding[:], v)
		h.Group = h.Founding.Group(founder)
	}
	if !h.Founding.Proves(founder, h.Group) || h.Group.OfVersionBefore() != (prefix == foundingBeforePrefix) {
		return Home{}, fmt.Errorf("store: the founding of the journal group, %d bytes at %s, is damaged", len(v), prefix)
	}
	return h, nil
}

// refuseDrawn returns an error if the store has jobs of a group whose ID was drawn at random. No host obeys the owner of
// such a group any more, because nothing proves who that is.
func refuseDrawn(s *Store) error {
	has, err := s.hasAny([]byte("s/" + s.Group().String() + "/j/"))
	if err != nil {
		return fmt.Errorf("store: look for jobs of earlier versions: %w", err)
	}
	if has {
		return fmt.Errorf("store: the data directory has jobs …-%s of a version that this one cannot succeed, and nothing in it was changed: "+
			"let them end and be deleted under the version before, or start with another data directory", s.Group())
	}
	return nil
}

// hasAny reports whether there is a key with this prefix.
func (s *Store) hasAny(prefix []byte) (found bool, err error) {
	err = s.ReadPrefix(prefix, func(_, _ []byte) error {
		found = true
		return ErrStop
	})
	return found, err
}
