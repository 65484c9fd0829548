package nvml

// Where the driver's libraries are.

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// put makes an empty file.
func put(t *testing.T, path ...string) {
	t.Helper()
	at := filepath.Join(path...)
	err := os.MkdirAll(filepath.Dir(at), 0o700)
	if err == nil {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirectoriesOfTheLibraries(t *testing.T) {
	root := t.TempDir()
	if got := holding(usual, root); len(got) != 0 {
		t.Errorf("found %v where nothing is, want none", got)
	}
	put(t, root, "usr/lib/wsl/lib/libcuda.so.1")
	put(t, root, "run/opengl-driver/lib/libnvidia-ml.so.1")
	put(t, root, "usr/local/nvidia/lib/libother.so.1")
	if got, want := holding(usual, root), []string{"/run/opengl-driver/lib", "/usr/lib/wsl/lib"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	with, without := t.TempDir(), t.TempDir()
	put(t, with, libraryName)
	t.Setenv(linkerPath, without+":"+with+":"+with+"::relative")
	if got := Libraries(nil); len(got) == 0 || got[0] != with || slices.Contains(got, without) || slices.Contains(got, "relative") {
		t.Errorf("directories from the variable: %v, want only the one with a library", got)
	}
	if got := Libraries([]string{without}); !slices.Equal(got, []string{without}) {
		t.Errorf("given: %v, want %v", got, []string{without})
	}
	cfg := Config{Libraries: func() []string { return []string{with, "/opt/driver"} }}
	if got, want := cfg.environment(), []string{linkerPath + "=" + without + ":" + with + ":" + with + "::relative:/opt/driver"}; !slices.Equal(got, want) {
		t.Errorf("the child gets %v, want %v", got, want)
	}
	t.Setenv(linkerPath, "")
	cfg.Libraries = func() []string { return nil }
	if got := cfg.environment(); len(got) != 0 {
		t.Errorf("the child gets %v where there is nothing, want none", got)
	}
}

// A host without a loaded module, such as Linux under Windows, shows only the library.
func TestLibraryThatAppearsIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p := &play{}
		p.scripts = []func(life){p.none, p.healthy}
		d, _ := stage(t, p)
		d.root, d.cfg.Libraries = t.TempDir(), func() []string { return []string{dir} }
		mustList(t, d, 0)
		time.Sleep(30 * time.Second)
		mustList(t, d, 0)
		put(t, dir, libraryName)
		mustList(t, d, 2)
	})
}
