package jobfiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range there {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil && !e.IsDir() {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

func want(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	got := content(t, dir)
	for name, text := range files {
		if had, there := got[name]; !there || had != text {
			t.Errorf("%s: got %q (exists: %t), want %q", name, had, there, text)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("got more files %q, want none", got)
	}
}

// Files of an earlier run of the daemon are corrected, and files that are not about GPUs stay.
func TestWriteCorrectsEarlierFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := Write(dir, map[string][]job.ID{"0": {"j1"}, "1.7": {"j2", "j3"}, "2": nil}); err != nil {
		t.Fatal(err)
	}
	want(t, dir, map[string]string{"0": "j1\n", "1.7": "j2\nj3\n"})
	for name, text := range map[string]string{"3": "gone\n", "4.1": "gone\n", temporary: "half", "notes": "mine", "4.1.1": "mine"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "9"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, map[string][]job.ID{"0": {"j4"}}); err != nil {
		t.Fatal(err)
	}
	want(t, dir, map[string]string{"0": "j4\n", "notes": "mine", "4.1.1": "mine", "9": ""})
	info, err := os.Stat(filepath.Join(dir, "0"))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("got mode %v, %v, want 0644, so that other accounts can read it", info.Mode(), err)
	}
}

// A reader never sees a part of a file: the name belongs to the old file or to the new one.
func TestFilesAreReplacedAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, map[string][]job.ID{"0": {"j1"}}); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(dir, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := Write(dir, map[string][]job.ID{"0": {"j2", "j3"}}); err != nil {
		t.Fatal(err)
	}
	was := make([]byte, 100)
	if n, _ := open.Read(was); string(was[:n]) != "j1\n" {
		t.Errorf("an open file has changed: got %q, want j1", was[:n])
	}
}

// A file that cannot be replaced does not prevent the correction of the others.
func TestFailureOfOneFileDoesNotStopTheOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, map[string][]job.ID{"0": {"a"}, "1": {"b"}, "2": {"c"}}); err == nil {
		t.Error("a directory in place of a file is no error")
	}
	got := content(t, dir)
	if got["0"] != "a\n" || got["2"] != "c\n" {
		t.Errorf("got %q, want the other two files", got)
	}
}

func TestNameIsTheIndexAndTheInstance(t *testing.T) {
	for want, d := range map[string]gpu.Device{
		"3":    {Index: 3},
		"3.11": {Index: 3, Parent: "GPU-x", Instance: "11"},
	} {
		if got := Name(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, d := range []gpu.Device{{Index: -1}, {Index: 1, Parent: "GPU-x"}, {Index: 1, Parent: "GPU-x", Instance: "../x"}} {
		if got := Name(d); got != "" {
			t.Errorf("%+v: got the name %q, want none", d, got)
		}
	}
}
