package node

// The owner of a group.

import "testing"

func TestOwnersByGroup(t *testing.T) {
	var s owners
	if s.of(1) != nil {
		t.Error("a daemon that owns no group has an owner")
	}
	first, second := &owner{}, &owner{}
	s.add(1, first)
	s.add(2, second)
	if s.of(1) != first || s.of(2) != second || s.home != first {
		t.Errorf("owners %+v", s)
	}
	if s.of(3) != first {
		t.Error("a group that this daemon does not own is not answered by its home group's owner")
	}
}
