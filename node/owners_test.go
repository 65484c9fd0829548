package node

// The owner of a group.

import "testing"

func TestOwnersByGroup(t *testing.T) {
	var s owners
	if s.of(1) != nil {
		t.Error("a daemon without the role owns a group")
	}
	first, second := &owner{}, &owner{}
	s.add(1, first)
	s.add(2, second)
	if s.of(1) != first || s.of(2) != second || s.home != first {
		t.Errorf("owners %+v", s)
	}
	if s.of(3) != first {
		t.Error("a group that is not here has another owner than home")
	}
}
