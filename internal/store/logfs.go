package store

// Writes to the write-ahead log: the first error ends the process. Pebble must not see the error, because in some
// places it would panic and then unlock locks that are not held.

import (
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logFS is the file system of an open database.
type logFS struct {
	vfs.FS
	end  func(error) // does not return
	open atomic.Bool // until then Open returns errors to its caller
}

// must ends the process if err is not nil and the database is open.
func (fs *logFS) must(what string, err error) error {
	if err != nil && fs.open.Load() {
		fs.end(fmt.Errorf("store: %s write-ahead log: %w", what, err))
	}
	return err
}

func isLog(name string) bool { return filepath.Ext(name) == ".log" }

func (fs *logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if !isLog(name) {
		return f, err
	}
	return fs.log(f, err)
}

func (fs *logFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, category)
	if !isLog(to) {
		return f, err
	}
	return fs.log(f, err)
}

// OpenDir opens a directory. It is treated as a log file, because the directory of a log is synced with it.
func (fs *logFS) OpenDir(name string) (vfs.File, error) { return fs.log(fs.FS.OpenDir(name)) }

func (fs *logFS) log(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, fs.must("open", err)
	}
	return logFile{f, fs}, nil
}

// Unwrap returns the wrapped file system.
func (fs *logFS) Unwrap() vfs.FS { return fs.FS }

// logFile is a write-ahead log, or its directory.
type logFile struct {
	vfs.File
	fs *logFS
}

func (f logFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.fs.must("write", err)
}

func (f logFile) Preallocate(offset, length int64) error {
	return f.fs.must("extend", f.File.Preallocate(offset, length))
}

func (f logFile) Sync() error { return f.fs.must("sync", f.File.Sync()) }

func (f logFile) SyncData() error { return f.fs.must("sync", f.File.SyncData()) }

func (f logFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.fs.must("sync", err)
}

func (f logFile) Close() error { return f.fs.must("close", f.File.Close()) }
