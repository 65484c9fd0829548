package job

// Container images and mounts.

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	maxImage  = 512 // bytes of a reference: a name of at most 255, a tag of at most 128, a digest
	maxMounts = 64
)

// Expressions are compiled when they are first used: most verbs start without them.

// imageRef matches a reference as registries define it, [HOST[:PORT]/]NAME[:TAG][@DIGEST]. The container engine makes
// the final check when it pulls the image.
var imageRef = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?` +
		`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*` +
		`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)
})

// Mount is a directory or file of the host that a container can access.
type Mount struct {
	Source   string // on the host
	Target   string // in the container
	ReadOnly bool
}

// ParseMount parses SRC:DST, SRC:DST:ro or SRC:DST:rw; rw is the default.
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
			return m, fmt.Errorf("mount %.80q: %.60q is not an absolute path, or has . or .. in it", text, p)
		}
	}
	if m.Target == "/" {
		return m, fmt.Errorf("mount %.80q: the target cannot be the root of the image", text)
	}
	for _, own := range kernels {
		if m.Target == own || strings.HasPrefix(m.Target, own+"/") && own != "/dev" {
			return m, fmt.Errorf("mount %.80q: the target cannot be in %s, which every container has from the kernel", text, own)
		}
	}
	return m, nil
}

// kernels are directories that the kernel and the engine fill. Below /dev mounts are possible.
var kernels = []string{"/proc", "/sys", "/dev"}

// Below reports whether the source is one of the directories or lies below one of them.
func (m Mount) Below(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return m.Source == d || d == "/" || strings.HasPrefix(m.Source, strings.TrimSuffix(d, "/")+"/")
	})
}

func checkImage(s Spec) error {
	switch {
	case s.Image == "" && len(s.Mounts) > 0:
		return errors.New("mounts: only for a job with an image; a plain process sees the node's own directories")
	case len(s.Mounts) > maxMounts:
		return fmt.Errorf("mounts: %d; at most %d", len(s.Mounts), maxMounts)
	case s.Image != "" && s.Workdir != "" && len(s.Download) > 0:
		return errors.New("download: files of a container can be kept only from its scratch directory; leave workdir out to start there")
	case s.Image != "" && (len(s.Image) > maxImage || !imageRef().MatchString(s.Image)):
		return fmt.Errorf("image %.80q: not a reference such as registry/name:tag (names are in lower case)", s.Image)
	}
	targets := map[string]bool{}
	for _, text := range s.Mounts {
		m, err := ParseMount(text)
		if err != nil {
			return err
		}
		if targets[m.Target] {
			return fmt.Errorf("mount %.80q: another mount is at %.60s", text, m.Target)
		}
		targets[m.Target] = true
	}
	return nil
}
