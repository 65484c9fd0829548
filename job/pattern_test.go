package job

import (
	"errors"
	"strings"
	"testing"
)

func TestPatternsOfOutputFilesAreChecked(t *testing.T) {
	n := Names{ID: "k3v9x0q2mz-0000000000000", Task: 7, Index: 3, Job: "../x", Node: "amy", User: "ada"}
	for pattern, want := range map[string]string{
		"plain":             "plain",
		"/logs/%u/%j_%t.%n": "/logs/ada/k3v9x0q2mz-0000000000000_7.amy",
		"%A_%a-%N":          "k3v9x0q2mz-0000000000000_3-amy",
		"%x%%x":             ".._x%x",
		"%4a_%04t_%1a_%0t":  "0003_0007_3_7",
	} {
		if got := n.Expand(pattern); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
	spec := func(output, workdir, image string) Spec {
		s := DefaultSpec()
		s.Command, s.Output, s.Workdir, s.Image = []string{"x"}, output, workdir, image
		return s
	}
	for _, good := range []Spec{spec("/x/%j", "", ""), spec("%x.out", "/w", ""), spec("100%%", "/w", ""), spec("/x/%j", "", "i"), spec("/x/%j", "/w", "i")} {
		if err := good.Validate(); err != nil {
			t.Errorf("%q: %v", good.Output, err)
		}
	}
	for _, bad := range []Spec{spec("/%", "", ""), spec("/%q", "", ""), spec("/%5j", "", ""), spec("/%123t", "", ""), spec("/%5", "", ""), spec("/%é", "", ""), spec("/a\x00", "", ""), spec("/"+strings.Repeat("a", maxPattern), "", "")} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "output") {
			t.Errorf(`%.20q: %v, want an error and "output" in it`, bad.Output, err)
		}
	}
	if err := spec("x", "", "").Validate(); !errors.Is(err, errNoWorkdir) {
		t.Errorf("relative without a workdir: %v, want errNoWorkdir", err)
	}
	inside := spec("x", "/w", "i")
	if err := inside.Validate(); !errors.Is(err, errInContainer) {
		t.Errorf("relative to a directory in a container: %v, want errInContainer", err)
	}
	if inside.SubmitDir = "/s"; inside.Validate() != nil {
		t.Errorf("relative to the directory of the submit: %v, want no error", inside.Validate())
	}
}
