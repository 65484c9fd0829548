package node

// The program of the runner: a small separate program that is embedded in muster.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// RunnerPrefix is the beginning of the file name of the runner's program.
const RunnerPrefix = "muster-runner"

// runnerProgram returns the program with which this daemon starts runners, and the arguments before its flags. It is
// muster itself if no program is embedded, or if programs in the data directory cannot be executed.
func runnerProgram(cfg Config, dir string, log *slog.Logger) (path string, words []string) {
	own := []string{"runner"}
	if len(cfg.RunnerProgram) == 0 {
		return cfg.Program, own
	}
	path, err := unpack(dir, cfg.RunnerProgram)
	if err != nil {
		log.Info("the separate program of the runner cannot be used; the runner needs more memory without it", "error", err)
		return cfg.Program, own
	}
	return path, nil
}

// unpack writes a program to dir. Its name contains a hash of its content, so that two versions of muster never use the
// same file. It removes the programs of other versions; runners that were started from them go on.
func unpack(dir string, program []byte) (string, error) {
	sum := sha256.Sum256(program)
	path, err := filepath.Abs(filepath.Join(dir, RunnerPrefix+"-"+hex.EncodeToString(sum[:6])))
	if err != nil {
		return "", fmt.Errorf("runner program: %w", err)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // users whose tasks root runs must be able to enter it
		return "", fmt.Errorf("runner program: %w", err)
	}
	if old, err := os.ReadFile(path); err != nil || sha256.Sum256(old) != sum {
		// Users execute it too: as muster-become it starts their programs.
		if err := renameio.WriteFile(path, program, 0o755, renameio.WithTempDir(dir)); err != nil {
			return "", fmt.Errorf("runner program: %w", err)
		}
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", fmt.Errorf("runner program %s: %w", path, err)
	}
	all, err := os.ReadDir(dir)
	for _, e := range all {
		if name := e.Name(); strings.HasPrefix(name, RunnerPrefix) && name != filepath.Base(path) {
			if gone := os.Remove(filepath.Join(dir, name)); !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}
	return path, err
}
