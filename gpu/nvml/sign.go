package nvml

// Signs of change: what the kernel and the file system say about NVIDIA's driver without a call into its library. A child
// does not notice all changes, so the driver starts another one. A child cannot start the library anew: one of its threads
// is always in the library and waits for events.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	libraryPrefix = "libnvidia-ml.so"
	libraryName   = libraryPrefix + ".1"
)

// sign returns a text that changes when the kernel's driver is loaded, unloaded or replaced, or finds or loses a card.
// It is empty if no driver is loaded.
func sign(root string) string {
	var b strings.Builder
	dir := filepath.Join(root, "proc/driver/nvidia")
	if version, err := os.ReadFile(filepath.Join(dir, "version")); err == nil {
		b.Write(version)
	}
	if cards, err := os.ReadDir(filepath.Join(dir, "gpus")); err == nil {
		for _, card := range cards {
			b.WriteString(card.Name() + "\n")
		}
	}
	if _, err := os.Stat(filepath.Join(root, "dev/dxg")); err == nil { // the subsystem for Linux of Windows
		b.WriteString("dxg\n")
	}
	return b.String()
}

// loaded returns the path of the library that this process has loaded; empty: it is not known.
func loaded() string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(maps)) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.HasPrefix(filepath.Base(line[at:]), libraryPrefix) {
			return strings.TrimSpace(line[at:])
		}
	}
	return ""
}

// gone is the identity of a file that is not there.
const gone = "gone"

// identity returns a text that changes when the file is replaced; empty: there is no path.
func identity(path string) string {
	if path == "" {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return gone
	}
	return fmt.Sprintf("%d %s %v", info.Size(), info.ModTime(), inode(info))
}
