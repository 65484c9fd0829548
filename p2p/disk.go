package p2p

// The data directory: small files that are replaced atomically.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// maxFile bounds what is read from a file. The largest file, a full list of revocations, is about half of it.
const maxFile = 16 << 20

// disk is a data directory. With an empty path nothing is stored.
type disk struct{ dir string }

// read returns the content of a file, nil if there is none.
func (d disk) read(name string) ([]byte, error) {
	if d.dir == "" {
		return nil, nil
	}
	path := filepath.Join(d.dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("p2p: read %s: %w", path, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("p2p: read %s: not a regular file of at most %d bytes", path, maxFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("p2p: read %s: %w", path, err)
	}
	return b, nil
}

// write replaces a file, readable only by its owner. When it returns, the new content survives a power cut.
func (d disk) write(name string, data []byte) error {
	if d.dir == "" {
		return nil
	}
	path := filepath.Join(d.dir, name)
	if err := renameio.WriteFile(path, data, 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("p2p: write %s: %w", path, err)
	}
	dir, err := os.Open(d.dir)
	if err != nil {
		return fmt.Errorf("p2p: sync %s: %w", d.dir, err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("p2p: sync %s: %w", d.dir, err)
	}
	return nil
}

// readJSON decodes a file into v and reports whether there was one.
func (d disk) readJSON(name string, v any) (bool, error) {
	b, err := d.read(name)
	if err != nil || b == nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("p2p: read %s: damaged: %w", filepath.Join(d.dir, name), err)
	}
	return true, nil
}

func (d disk) writeJSON(name string, v any) error {
	if d.dir == "" {
		return nil
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("p2p: write %s: %w", filepath.Join(d.dir, name), err)
	}
	return d.write(name, append(b, '\n'))
}
