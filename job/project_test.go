package job

import (
	"strings"
	"testing"
)

func TestNamesOfProjectsAreChecked(t *testing.T) {
	for _, ok := range []string{"", "vision", "a-b_c.d/e:1", strings.Repeat("p", MaxProject)} {
		s := DefaultSpec()
		s.Command, s.Project = []string{"true"}, ok
		if err := s.Validate(); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
		f, err := s.TaskFile()
		if err != nil || f.Spec().Project != "" {
			t.Errorf("%q: the file for hosts names project %q, %v: daemons of older versions would refuse it, want no error and none", ok, f.Spec().Project, err)
		}
	}
	for _, bad := range []string{"a b", "a\n", "é", strings.Repeat("p", MaxProject+1)} {
		s := DefaultSpec()
		s.Command, s.Project = []string{"true"}, bad
		if err := s.Validate(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want an error of one line", bad, err)
		}
	}
}
