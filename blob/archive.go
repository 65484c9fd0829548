package blob

// Unpacking files that are copied from a task, which arrive as a tar archive.

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Unarchive unpacks an archive into dir, which is made if it does not exist. An existing file is replaced once the
// new one is complete. Nothing is written outside of dir. A path or link that leads outside is ErrInvalid, and so is
// a second file with the same path.
func Unarchive(archive io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as any directory that a user makes
		return fmt.Errorf("copy to %s: %w", dir, cause(err))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", dir, cause(err))
	}
	defer root.Close() //nolint:errcheck // a directory
	seen := map[string]bool{}
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("copy to %s: %w", dir, err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if err := checkPath(name); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeDir && seen[name] {
			return fmt.Errorf("copy to %s: %w: two files are called %s; copy them one after the other", dir, ErrInvalid, name)
		}
		seen[name] = true
		if err := unarchiveOne(root, name, h, in); err != nil {
			return fmt.Errorf("copy %s to %s: %w", name, dir, err)
		}
	}
}

func unarchiveOne(root *os.Root, name string, h *tar.Header, data io.Reader) error {
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		if err := CheckLink(name, h.Linkname); err != nil {
			return err
		}
		if err := plain(root, name); err != nil { // below a link, CheckLink would not hold
			return err
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		return replace(root, name, h, data)
	}
	return fmt.Errorf("%w: neither file, directory nor link", ErrInvalid)
}

// plain returns an error if a directory above a path is a symbolic link.
func plain(root *os.Root, name string) error {
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		info, err := root.Lstat(up)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: a link below %s, which is a link itself", ErrInvalid, up)
		}
	}
	return nil
}

// replace writes a file under a temporary name and renames it when it is complete.
func replace(root *os.Root, name string, h *tar.Header, data io.Reader) error {
	part := path.Join(path.Dir(name), fmt.Sprintf(".muster-%d.part", os.Getpid()))
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data)
	err = errors.Join(err, f.Chmod(fs.FileMode(h.Mode)&fs.ModePerm), f.Close()) //nolint:gosec // masked to permission bits
	if err == nil {
		err = root.Chtimes(part, h.ModTime, h.ModTime)
	}
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		_ = root.Remove(part) // it is incomplete
	}
	return err
}
