package job

// Container images and what their tasks see of the host.

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	maxImage  = 512 // bytes of a reference: a name of at most 255, a tag of 128, a digest
	maxMounts = 64
)

// imageRef is the grammar of a reference, [HOST[:PORT]/]NAME[:TAG][@DIGEST], as
// registries have it. The engine that pulls has the last word.
var imageRef = regexp.MustCompile(`^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?` +
	`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*` +
	`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

// Mount is a directory or file of the host that a container sees.
type Mount struct {
	Source   string // on the host
	Target   string // inside
	ReadOnly bool
}

// ParseMount reads SRC:DST or SRC:DST:ro; rw is the default.
func ParseMount(text string) (Mount, error) {
	parts := strings.Split(text, ":")
	m := Mount{Source: parts[0]}
	if len(parts) < 2 || len(parts) > 3 {
		return m, fmt.Errorf("mount %.80q: want SRC:DST or SRC:DST:ro", text)
	}
	m.Target = parts[1]
	if len(parts) == 3 {
		if m.ReadOnly = parts[2] == "ro"; !m.ReadOnly && parts[2] != "rw" {
			return m, fmt.Errorf("mount %.80q: %.20q is neither ro nor rw", text, parts[2])
		}
	}
	for _, p := range []string{m.Source, m.Target} {
		if !strings.HasPrefix(p, "/") || path.Clean(p) != p || !printable(p) {
			return m, fmt.Errorf("mount %.80q: %.60q is not a whole path from the root, or has . or .. in it", text, p)
		}
	}
	if m.Target == "/" {
		return m, fmt.Errorf("mount %.80q: nothing can be put in the place of the image's root", text)
	}
	return m, nil
}

// Below says whether the source is one of the directories, or lies below one.
func (m Mount) Below(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return m.Source == d || d == "/" || strings.HasPrefix(m.Source, strings.TrimSuffix(d, "/")+"/")
	})
}

func checkImage(s Spec) error {
	switch {
	case s.Image == "" && len(s.Mounts) > 0:
		return errors.New("mounts: only a task with an image has mounts; a process sees the node's own directories")
	case len(s.Mounts) > maxMounts:
		return fmt.Errorf("mounts: %d; at most %d", len(s.Mounts), maxMounts)
	case s.Image != "" && s.Workdir != "" && len(s.Download) > 0:
		return errors.New("download: of a container only what lies in its scratch directory can be kept; leave workdir out, and the task starts there")
	case s.Image != "" && (len(s.Image) > maxImage || !imageRef.MatchString(s.Image)):
		return fmt.Errorf("image %.80q: not a reference such as registry/name:tag (names are in small letters)", s.Image)
	}
	for _, text := range s.Mounts {
		if _, err := ParseMount(text); err != nil {
			return err
		}
	}
	return nil
}
