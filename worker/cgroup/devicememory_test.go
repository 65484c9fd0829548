package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const capacity = "drm/0000:79:00.0/vram0 34359738368\ndrm/0000:79:00.0/vram1 34359738368\nnvidia/0000:01:00/vidmem 85899345920\nnvidia/0000:81:00/vidmem 85899345920\ndrm/0000:79:00.1/vram0 1\nmem/lowest 5\n\n"

// The regions of a device are those with its address, in whatever form it is written, and no others.
func TestRegionsOfADeviceHaveItsAddress(t *testing.T) {
	t.Parallel()
	for pci, want := range map[string][]string{
		"0000:79:00.0":          {"drm/0000:79:00.0/vram0", "drm/0000:79:00.0/vram1"},
		"00000000:01:00.0":      {"nvidia/0000:01:00/vidmem"},
		"0000:01:00":            {"nvidia/0000:01:00/vidmem"},
		"0000:79:00.1":          {"drm/0000:79:00.1/vram0"},
		"0001:01:00.0":          nil,
		"0000:1:00.0":           {"nvidia/0000:01:00/vidmem"},
		"0000:8:00.0":           nil,
		"":                      nil,
		"vidmem":                nil,
		"0000:01":               nil,
		"0000:01:00.9":          nil,
		"0000:01:ff.0":          nil,
		"0000:01:00.0:00":       nil,
		"00000000 0000:01:00.0": nil,
	} {
		if got := regionsOf(capacity, pci); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", pci, got, want)
		}
	}
}

// A task's group is bounded in each region of its devices, unless the kernel lacks that controller.
func TestDeviceMemoryIsBounded(t *testing.T) {
	t.Parallel()
	place := func(t *testing.T, has []string, files ...string) (string, error) {
		t.Helper()
		root := t.TempDir()
		tree := &Tree{unified: filepath.Join(root, "tree"), root: root, has: has}
		group := filepath.Join(tree.unified, "task")
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text := ""
			if name == "dmem.capacity" {
				text = capacity
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := &Place{FD: -1, tree: tree, name: "task"}
		err := tree.placeUnified(p, Limits{DeviceMemory: []DeviceMemory{{PCI: "00000000:01:00.0", Bytes: 40 << 30}, {PCI: "0000:ff:00.0", Bytes: 1}}})
		p.Close()
		text, _ := os.ReadFile(filepath.Join(group, "dmem.max"))
		return string(text), err
	}
	if got, err := place(t, []string{DMem}, "dmem.capacity", "tree/task/dmem.max"); err != nil || got != "nvidia/0000:01:00/vidmem 42949672960" {
		t.Errorf(`%q, %v, want no error and "nvidia/0000:01:00/vidmem 42949672960"`, got, err)
	}
	if got, err := place(t, nil, "dmem.capacity", "tree/task/dmem.max"); err != nil || got != "" {
		t.Errorf("without the controller: %q, %v, want no error and none", got, err)
	}
	if got, err := place(t, []string{DMem}, "tree/task/dmem.max"); err != nil || got != "" {
		t.Errorf("without a list of regions: %q, %v, want no error and none", got, err)
	}
	if _, err := place(t, []string{DMem}, "dmem.capacity"); err == nil {
		t.Error("a bound that cannot be written was no error")
	}
}
