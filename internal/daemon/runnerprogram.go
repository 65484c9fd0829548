package daemon

// The program of the runner: a small separate program that is embedded in muster.

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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

// unpack writes a gzip-compressed program to dir. The file name contains a hash of the content, so that two versions of
// muster never use the same file. unpack removes the programs of other versions; runners that were started from them go on.
func unpack(dir string, packed []byte) (string, error) {
	sum := sha256.Sum256(packed)
	path, err := filepath.Abs(filepath.Join(dir, RunnerPrefix+"-"+hex.EncodeToString(sum[:6])))
	if err != nil {
		return "", fmt.Errorf("runner program: %w", err)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // users whose tasks root runs must be able to enter it
		return "", fmt.Errorf("runner program: %w", err)
	}
	if !whole(path, packed) {
		if err := writeUnpacked(path, packed); err != nil {
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

// whole reports whether the file is complete: it compares length and checksum with those at the end of the packed data.
func whole(path string, packed []byte) bool {
	const trailer = 8
	if len(packed) < trailer {
		return false
	}
	end := packed[len(packed)-trailer:]
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, f)
	return err == nil && sum.Sum32() == binary.LittleEndian.Uint32(end) && n == int64(binary.LittleEndian.Uint32(end[4:]))
}

// writeUnpacked writes the unpacked program to a file. On an error it leaves the file as it is.
func writeUnpacked(path string, packed []byte) error {
	from, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	// Users execute it too: as muster-become it starts their programs.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o755))
	if err != nil {
		return err
	}
	defer f.Cleanup()                           //nolint:errcheck // only after another error
	if _, err := io.Copy(f, from); err != nil { //nolint:gosec // it is a part of this program
		return err
	}
	return f.CloseAtomicallyReplace()
}
