package nvidia

import (
	"os"
	"path/filepath"
	"testing"
)

// Device numbers count until a module is loaded or unloaded. If that cannot be noticed, they are read each time.
func TestDeviceNumbersAreReadAgainWhenModulesChange(t *testing.T) {
	root := t.TempDir()
	write := func(uvm string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc/devices"), []byte("Character devices:\n"+uvm), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	module := func(name string) string { return filepath.Join(root, "sys/module", name) }
	load := func(name string) {
		t.Helper()
		if err := os.MkdirAll(module(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k := NewKernel(root)
	expect := func(when string, want uint32) {
		t.Helper()
		if got := k.numbers()[moduleUVM]; got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	write("500 nvidia-uvm\n")
	expect("the first time", 500)
	write("501 nvidia-uvm\n")
	expect("modules cannot be seen", 501)

	load("loop")
	write("")
	expect("modules can be seen, the driver is not loaded", 0)
	load("nvidia_uvm")
	write("502 nvidia-uvm\n")
	expect("loaded", 502)
	write("503 nvidia-uvm\n")
	expect("no module has changed", 502)
	// The moved directory keeps its inode, as the kernel never reuses one, and the number of modules stays.
	if err := os.Rename(module("nvidia_uvm"), filepath.Join(root, "before")); err != nil {
		t.Fatal(err)
	}
	load("nvidia_uvm")
	expect("loaded again", 503)
	load("nvidia_new")
	write("504 nvidia-uvm\n")
	expect("a module of a later driver", 504)
	if err := os.Remove(module("nvidia_uvm")); err != nil {
		t.Fatal(err)
	}
	write("")
	expect("unloaded", 0)
}

func BenchmarkGrant(b *testing.B) {
	k := NewKernel("/")
	for b.Loop() {
		_ = k.Grant(nil)
	}
}
