package nvml

// Where the libraries of NVIDIA's driver are, if the linker does not find them by itself.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	linkerPath = "LD_LIBRARY_PATH"
	maxPaths   = 16 // bounds the directories that tasks are told
)

// usual are the directories of the driver's libraries on systems whose linker does not search them: hosts of
// containers, NixOS, and Windows.
var usual = []string{"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/run/opengl-driver/lib", "/usr/lib/wsl/lib"}

// libraries are the files by which such a directory is recognized.
var libraries = []string{"libcuda.so.1", libraryName}

// Libraries returns the directories with the driver's libraries that the linker does not search by itself: those given,
// or, if none is, those of this process's LD_LIBRARY_PATH and of usual places that have the libraries now.
func Libraries(given []string) []string {
	if len(given) > 0 {
		return given
	}
	return holding(append(filepath.SplitList(os.Getenv(linkerPath)), usual...), "/")
}

// holding returns those of the directories below root that have the driver's libraries.
func holding(dirs []string, root string) (out []string) {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) || slices.Contains(out, dir) || len(out) == maxPaths {
			continue
		}
		if slices.ContainsFunc(libraries, func(name string) bool {
			_, err := os.Stat(filepath.Join(root, dir, name))
			return err == nil
		}) {
			out = append(out, dir)
		}
	}
	return out
}

// environment returns the variables of the child beside those of this process.
func (c Config) environment() []string {
	if c.Libraries == nil {
		return nil
	}
	dirs := filepath.SplitList(os.Getenv(linkerPath))
	for _, dir := range c.Libraries() {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	return []string{linkerPath + "=" + strings.Join(dirs, string(filepath.ListSeparator))}
}
