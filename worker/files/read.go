package files

// Reading the files of a task as a tar stream.

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/spawn"
	"github.com/musterhq/muster/worker/userfile"
)

// Place is a directory with files of an attempt, and the account that reads them.
type Place struct {
	dir     string
	account spawn.Account
	// Missing are the job's globs that matched nothing when the task ended. Problem says why some matches were not
	// kept.
	Missing []string
	Problem string
}

// Living returns the place of a running attempt: its working directory on this host, or its scratch directory if it
// has no other.
func (d *Driver) Living(a job.Attempt, user string, spec job.Spec) (Place, error) {
	return d.cfg.place(a, about{User: user, Container: spec.Image != "", Workdir: workdir(spec)})
}

func (c Config) place(a job.Attempt, say about) (Place, error) {
	account, err := c.account(say.User, say.Container)
	if err != nil {
		return Place{}, err
	}
	p := Place{dir: say.Workdir, account: account, Missing: say.Missing, Problem: say.Problem}
	if p.dir == "" {
		p.dir = c.scratch(a)
	}
	return p, nil
}

// Ended returns the place of an attempt that has ended, or ErrNone.
func (d *Driver) Ended(a job.Attempt) (Place, error) {
	say, err := d.cfg.readAbout(a)
	if err != nil {
		return Place{}, err
	}
	p, err := d.cfg.place(a, say)
	if say.Workdir == "" {
		p.dir = d.cfg.kept(a)
	}
	return p, err
}

// Pack writes the matches of globs to w as a tar stream. With base each match is at the root, under its base name. It
// leaves out links that lead outside of the place, and everything that is not a file, directory or link. The error is
// ErrNone if nothing matches or everything is left out.
func (p Place) Pack(ctx context.Context, globs []string, base bool, w io.Writer) error {
	return p.account.As(func(t userfile.Thread) error {
		root, err := t.OpenRoot(p.dir)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNone, err)
		}
		defer root.Close() //nolint:errcheck // a directory
		k := packing{root: root, out: tar.NewWriter(w), done: map[string]bool{}}
		for _, glob := range globs {
			if err := k.glob(ctx, glob, base); err != nil {
				return err
			}
		}
		if len(k.done) == 0 {
			return fmt.Errorf("%w: no file matched %s", ErrNone, strings.Join(globs, " "))
		}
		if k.heads == 0 && k.left != "" {
			return fmt.Errorf("%w: %s", ErrNone, k.left)
		}
		return k.out.Close()
	})
}

type packing struct {
	root *os.Root
	out  *tar.Writer
	done map[string]bool // matches that were written, each with everything below it

	heads int    // number of tar headers written
	left  string // the first path that was left out, and why
}

// leave records that a path is left out.
func (k *packing) leave(at, why string) {
	if k.left == "" {
		k.left = at + " " + why
	}
}

// wrote reports whether a path is in the archive, by itself or within a directory.
func (k *packing) wrote(at string) bool {
	for ; at != "."; at = path.Dir(at) {
		if k.done[at] {
			return true
		}
	}
	return k.done["."]
}

// glob writes all matches of a glob.
func (k *packing) glob(ctx context.Context, glob string, base bool) error {
	names, err := match(k.root, glob)
	if err != nil {
		return err
	}
	for _, name := range names {
		strip := ""
		if base && name != "." {
			strip = path.Dir(name) + "/"
		}
		if err := k.tree(ctx, name, strip); err != nil {
			return err
		}
	}
	return nil
}

// tree writes a match and everything below it.
func (k *packing) tree(ctx context.Context, name, strip string) error {
	info, err := k.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || k.wrote(name) {
		return nil // the running task has removed it, or it is written already
	}
	if err == nil && !info.IsDir() {
		k.done[name] = true
		return k.one(name, strings.TrimPrefix(name, strip))
	}
	err = fs.WalkDir(listingOf(k.root), name, func(at string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("files: %w", err)
		}
		if at == "." || k.wrote(at) {
			return nil
		}
		return k.one(at, strings.TrimPrefix(at, strip))
	})
	k.done[name] = true
	return err
}

func (k *packing) one(at, name string) error {
	info, err := k.root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return k.head(h)
	case info.Mode()&fs.ModeSymlink != 0:
		if h.Linkname, err = k.root.Readlink(at); err != nil || upload.CheckLink(name, h.Linkname) != nil {
			k.leave(at, "is a link that leads out of what is copied: name what it leads to")
			return nil //nolint:nilerr // the link means nothing on another host
		}
		h.Typeflag = tar.TypeSymlink
		return k.head(h)
	case info.Mode().IsRegular():
		return k.file(at, h)
	}
	k.leave(at, "is neither a file nor a directory")
	return nil
}

func (k *packing) head(h *tar.Header) error {
	if err := k.out.WriteHeader(h); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	k.heads++
	return nil
}

// file writes a file with the size that it has when it is opened. A running task may append to the file, or truncate
// it; then the rest is filled with zeros.
func (k *packing) file(at string, h *tar.Header) error {
	f, err := k.root.OpenFile(at, os.O_RDONLY|unix.O_NONBLOCK, 0) // O_NONBLOCK: a FIFO put in its place must not block
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil // it is not a regular file any more
	}
	if err := userfile.Check(f); err != nil {
		k.leave(at, err.Error())
		return nil
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := k.head(h); err != nil {
		return err
	}
	n, err := io.Copy(k.out, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		_, err = io.Copy(k.out, io.LimitReader(zeros{}, h.Size-n))
	}
	if err != nil {
		return fmt.Errorf("files: read %s: %w", at, err)
	}
	return nil
}

// zeros is an endless stream of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
