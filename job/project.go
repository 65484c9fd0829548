package job

// Projects: under which name, besides the user's, the usage of a job is counted.

import (
	"fmt"
	"strings"
)

// MaxProject bounds the name of a project, in bytes.
const MaxProject = 64

// CheckProject returns an error if the name of a project is not valid. The empty name stands for no project.
func CheckProject(name string) error {
	bad := func(r rune) bool { return !isLabelRune(r) }
	if len(name) > MaxProject || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("project %.70q: want at most %d letters, digits and ._-/: only", name, MaxProject)
	}
	return nil
}

func checkProject(s Spec) error { return CheckProject(s.Project) }
