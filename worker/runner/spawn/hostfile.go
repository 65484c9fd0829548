package spawn

// Hostfiles: files that list the hosts of a task, for programs such as mpirun.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// hostfile returns the path of a file in dir with this text. Tasks with the same hosts share one file, which none of
// them may change.
func hostfile(dir, text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	path := filepath.Join(dir, hex.EncodeToString(sum[:12]))
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // tasks of other users read in it
		return "", fmt.Errorf("runner: directory of hostfiles: %w", err)
	}
	if err := renameio.WriteFile(path, []byte(text), 0o444); err != nil {
		return "", fmt.Errorf("runner: write hostfile: %w", err)
	}
	return path, nil
}
