package supervisor

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
)

func TestLibrariesComeAfterThoseOfTheUser(t *testing.T) {
	dirs := []string{"/usr/local/nvidia/lib64", "/run/opengl-driver/lib"}
	for name, c := range map[string]struct {
		dirs      []string
		env, want []string
		image     string
	}{
		"none":      {nil, []string{"PATH=/bin"}, []string{"PATH=/bin"}, ""},
		"container": {dirs, []string{"PATH=/bin"}, []string{"PATH=/bin"}, "image"},
		"alone":     {dirs, []string{"PATH=/bin"}, []string{"LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/run/opengl-driver/lib", "PATH=/bin"}, ""},
		"user":      {dirs, []string{"LD_LIBRARY_PATH=/opt/lib"}, []string{"LD_LIBRARY_PATH=/opt/lib:/usr/local/nvidia/lib64:/run/opengl-driver/lib"}, ""},
		"empty":     {dirs[:1], []string{"LD_LIBRARY_PATH="}, []string{"LD_LIBRARY_PATH=/usr/local/nvidia/lib64"}, ""},
		"has it":    {dirs[:1], []string{"LD_LIBRARY_PATH=" + dirs[0] + ":/opt"}, []string{"LD_LIBRARY_PATH=" + dirs[0] + ":/opt"}, ""},
	} {
		before := slices.Clone(c.env)
		got := environmentOf(driver.Task{Spec: job.Spec{Image: c.image}, Env: c.env}, func() []string { return c.dirs })
		if !slices.Equal(got, c.want) || !slices.Equal(c.env, before) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
