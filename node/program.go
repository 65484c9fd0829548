package node

// The program of the runner: a small one that muster carries within itself.

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

// RunnerPrefix begins the name of the runner's program.
const RunnerPrefix = "muster-runner"

// runnerProgram is the program that a runner of this daemon is started from,
// and the words before its flags. Where none is carried, or the data directory
// lies where nothing may be executed, it is muster itself.
func runnerProgram(cfg Config, dir string, log *slog.Logger) (path string, words []string) {
	own := []string{"runner"}
	if len(cfg.RunnerProgram) == 0 {
		return cfg.Program, own
	}
	path, err := unpack(dir, cfg.RunnerProgram)
	if err != nil {
		log.Info("the runner's own program cannot be used, it takes more memory so", "error", err)
		return cfg.Program, own
	}
	return path, nil
}

// unpack writes a program to dir under a name that tells its content, so that
// two versions of muster never share one, and removes others: runners that were
// started from them keep them open.
func unpack(dir string, program []byte) (string, error) {
	sum := sha256.Sum256(program)
	path, err := filepath.Abs(filepath.Join(dir, RunnerPrefix+"-"+hex.EncodeToString(sum[:6])))
	if err != nil {
		return "", fmt.Errorf("runner program: %w", err)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // users whose tasks root runs pass through it
		return "", fmt.Errorf("runner program: %w", err)
	}
	if old, err := os.ReadFile(path); err != nil || sha256.Sum256(old) != sum {
		// Users execute it as well, on the way to programs of their own.
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
