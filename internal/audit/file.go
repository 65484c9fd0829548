package audit

// The files of the log: one that is appended to, and the older ones. The usual library, lumberjack, names old files by the
// clock, so that two in a millisecond are one and a clock that is set back changes their order. It also removes old files
// later, in a goroutine that never ends, and follows links.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Name is the name of the newest file. Older ones have .1, .2 and so on after it.
const Name = "audit.jsonl"

// files are the files of the log.
type files struct {
	path string
	most int64 // bytes of one file
	old  int   // older files that are kept

	mu   sync.Mutex
	file *os.File  // guarded by mu; the newest
	out  io.Writer // guarded by mu; where appends go: file
	size int64     // guarded by mu
	torn bool      // guarded by mu; the file does not end with a whole line
}

// openFiles opens the newest file, or creates it.
func openFiles(path string, most int64, old int) (*files, error) {
	f := &files{path: path, most: most, old: old}
	file, err := openFile(path, 0)
	if err != nil {
		return nil, err
	}
	if err := f.useLocked(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

func openFile(path string, more int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|more, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := file.Chmod(0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("audit: %w", err), file.Close())
	}
	return file, nil
}

// useLocked makes a file the newest.
func (f *files) useLocked(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	f.file, f.out, f.size, f.torn = file, file, info.Size(), false
	if f.size > 0 {
		last := make([]byte, 1)
		_, err := file.ReadAt(last, f.size-1)
		f.torn = err != nil || last[0] != '\n'
	}
	return nil
}

// append writes lines at the end, each whole. Lines that do not fit go to a new file.
func (f *files) append(lines []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(lines)) > f.most {
		if err := f.rotateLocked(); err != nil {
			return err
		}
	}
	if f.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := f.out.Write(lines)
	f.size += int64(n)
	if err != nil {
		f.torn = f.torn || n > 0
		return fmt.Errorf("audit: %w", err)
	}
	f.torn = false
	return nil
}

// rotateLocked makes the newest file an older one. If it fails, nothing is written, and the next call goes on where it
// stopped, so that a failure loses no file.
func (f *files) rotateLocked() error {
	next, err := openFile(f.path+".new", os.O_TRUNC)
	if err != nil {
		return err
	}
	free := 0 // the first name that no file has, or the oldest
	for free < f.old {
		if _, err := os.Lstat(f.name(free)); errors.Is(err, fs.ErrNotExist) {
			break
		}
		free++
	}
	for i := free; i > 0 && err == nil; i-- {
		err = os.Rename(f.name(i-1), f.name(i))
	}
	if err == nil {
		err = os.Rename(next.Name(), f.path)
	}
	full := f.file
	if err == nil {
		err = f.useLocked(next)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("audit: rotate: %w", err), next.Close())
	}
	return full.Close()
}

func (f *files) name(i int) string {
	if i == 0 {
		return f.path
	}
	return f.path + "." + strconv.Itoa(i)
}

// open opens all files for reading, the newest first. The caller closes them, also after an error.
func (f *files) open() ([]*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*os.File
	for i := range f.old + 1 {
		file, err := os.Open(f.name(i))
		switch {
		case err == nil:
			all = append(all, file)
		case !errors.Is(err, fs.ErrNotExist):
			return all, fmt.Errorf("audit: %w", err)
		}
	}
	return all, nil
}

func (f *files) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
