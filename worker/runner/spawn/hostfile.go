package spawn

// Hostfiles: files that list the hosts of a task, for programs such as mpirun.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// hostfile returns the path of the task's hostfile. All tasks that have only this host share a file in a directory of the
// runner, which none of them may change. A member of a gang has one of its own, which is deleted with the task's files.
func (s *Spawner) hostfile(o *Order, who Account) (string, error) {
	text := o.Start.Hostfile
	if strings.Count(text, "\n") <= 1 {
		return shared(s.hosts, text)
	}
	path := filepath.Join(s.dir.Task(o.Attempt), "hostfile")
	if err := os.WriteFile(path, []byte(text), 0o444); err != nil { //nolint:gosec // the task reads it
		return "", fmt.Errorf("runner: write hostfile: %w", err)
	}
	return path, who.own(path)
}

// shared returns the path of a file in dir with this text.
func shared(dir, text string) (string, error) {
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
