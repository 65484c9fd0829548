package store

// The reserve: files whose disk space is allocated while there is some. When the disk is full, the database takes them for
// the files that it has to begin.
//
// See docs/adr, ADR 156.

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/musterhq/muster/internal/inplace"
)

const (
	// bigBytes is the room for a write-ahead log, or for the table of one memtable.
	bigBytes = memTableBytes + memTableBytes/4
	// smallBytes is the room for one of the database's lists, or for the names of its current files.
	smallBytes = 64 << 10
	// leastBig and mostBig bound the number of big files: one for each bigShare bytes of the file system. Four are enough
	// to open a database and to end the tasks of a small host.
	leastBig, mostBig = 4, 16
	bigShare          = 64 << 20
	// smallFiles is the number of small ones. They also reserve inodes, because a file system may limit the number of
	// files.
	smallFiles = 16
)

// reserve is a file system that falls back on reserved files when the disk is full.
type reserve struct {
	vfs.FS
	space   *space
	dir     string
	filling atomic.Bool
	partial atomic.Bool // a file is missing

	mu    sync.Mutex
	big   stock // guarded by mu
	small stock // guarded by mu
}

// stock is one kind of file in the reserve.
type stock struct {
	kind  string
	bytes int64
	want  int
	names []string
}

// openReserve opens the reserve in dir. It allocates missing files if the disk has room for them.
func openReserve(fs vfs.FS, space *space, dir string) (*reserve, error) {
	r := &reserve{FS: fs, space: space, dir: dir, big: stock{kind: "big", bytes: bigBytes}, small: stock{kind: "small", bytes: smallBytes}}
	usage, err := fs.GetDiskUsage(space.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return r, nil // free space is not known, so nothing is kept
	}
	if err != nil {
		return nil, err
	}
	r.big.want = min(max(leastBig, int(clamp(usage.TotalBytes)/bigShare)), mostBig)
	r.small.want = smallFiles
	if err := fs.MkdirAll(dir, 0o700); err != nil && !full(err) {
		return nil, err
	}
	names, err := fs.List(dir)
	if err != nil && !full(err) && len(names) > 0 {
		return nil, err
	}
	for _, name := range names {
		for _, s := range []*stock{&r.big, &r.small} {
			if strings.HasPrefix(name, s.kind+"-") {
				r.allocate(filepath.Join(dir, name), s.bytes)
				s.names = append(s.names, name)
			}
		}
	}
	r.fill()
	return r, nil
}

// allocate gives a file of the reserve its disk space, or less if there is too little. It also makes the file.
func (r *reserve) allocate(path string, bytes int64) bool {
	f, err := r.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return false
	}
	inplace.Set(f.Fd())
	err = f.Preallocate(0, bytes)
	_ = f.Close() // nothing was written
	return err == nil || errors.Is(err, syscall.EOPNOTSUPP)
}

// fill allocates what the reserve lacks, as long as the disk has room for new work.
func (r *reserve) fill() {
	for {
		kind, name := r.lacks()
		r.partial.Store(kind != nil)
		if kind == nil || r.space.short(2) {
			return
		}
		path := filepath.Join(r.dir, name)
		if !r.allocate(path, kind.bytes) {
			_ = r.Remove(path) // it may not have been made
			return
		}
		r.mu.Lock()
		kind.names = append(kind.names, name)
		r.mu.Unlock()
	}
}

// lacks returns the kind of a file that is missing, and a name for it.
func (r *reserve) lacks() (*stock, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range []*stock{&r.small, &r.big} {
		if len(s.names) >= s.want {
			continue
		}
		used := map[string]bool{}
		for _, name := range s.names {
			used[name] = true
		}
		for n := 1; ; n++ {
			if name := s.kind + "-" + strconv.Itoa(n); !used[name] {
				return s, name
			}
		}
	}
	return nil, ""
}

// refill fills the reserve in the background if it lacks something.
func (r *reserve) refill() {
	if r.partial.Load() && r.filling.CompareAndSwap(false, true) {
		go func() {
			defer r.filling.Store(false)
			r.fill()
		}()
	}
}

// take removes a file from the stock, and returns its path.
func (r *reserve) take(s *stock) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(s.names) == 0 {
		return "", false
	}
	last := len(s.names) - 1
	name := s.names[last]
	s.names = s.names[:last]
	r.partial.Store(true)
	return filepath.Join(r.dir, name), true
}

// needs returns the stock from which a file with this name and category may be taken, or nil for none. A compaction
// gets nothing, because it can be done later.
func (r *reserve) needs(name string, category vfs.DiskWriteCategory) *stock {
	switch {
	case category == "pebble-compaction", category == "pebble-blob-file-rewrite":
		return nil
	case isLog(name), category == "pebble-memtable-flush":
		return &r.big
	}
	return &r.small
}

// Create makes a file. On a full disk it reuses a file of the reserve.
func (r *reserve) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	s := r.needs(name, category)
	if s == nil {
		return r.FS.Create(name, category)
	}
	short := r.space.short(1)
	if short {
		if f, err := r.reuse(s, name, category); err == nil {
			return &reserved{File: f, r: r}, nil
		}
	}
	f, err := r.FS.Create(name, category)
	if full(err) && !short {
		f, err = r.reuse(s, name, category)
	}
	if err != nil {
		return nil, err
	}
	if isLog(name) {
		inplace.Set(f.Fd())
	}
	return &reserved{File: f, r: r}, nil
}

// reuse turns a file of the reserve into the file with this name.
func (r *reserve) reuse(s *stock, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	path, ok := r.take(s)
	if !ok {
		return nil, syscall.ENOSPC
	}
	f, err := r.ReuseForWrite(path, name, category)
	for full(err) && r.give() { // the directory has to grow for the name
		f, err = r.ReuseForWrite(path, name, category)
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.names = append(s.names, filepath.Base(path))
	}
	return f, err
}

// give removes a file, so that its space is free. It returns false if there is none.
func (r *reserve) give() bool {
	path, ok := r.take(&r.big)
	return ok && r.Remove(path) == nil
}

// Unwrap returns the wrapped file system.
func (r *reserve) Unwrap() vfs.FS { return r.FS }

// reserved is a file that gets space of the reserve when the disk is full.
type reserved struct {
	vfs.File
	r       *reserve
	written int64
}

func (f *reserved) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.written += int64(n)
	for full(err) && n < len(b) && f.more() {
		var more int
		more, err = f.File.Write(b[n:])
		n += more
		f.written += int64(more)
	}
	return n, err
}

func (f *reserved) Preallocate(offset, length int64) error {
	err := f.File.Preallocate(offset, length)
	for full(err) && f.more() {
		if err = f.File.Preallocate(offset, length); full(err) {
			return nil // it is not needed, and a write says if there is no room
		}
	}
	return err
}

// more removes a file of the reserve and allocates its space for this one. It returns false if there is none.
func (f *reserved) more() bool {
	if !f.r.give() {
		return false
	}
	_ = f.File.Preallocate(f.written, bigBytes/2) // others may have taken the space; the next write shows
	return true
}

// full reports whether an error says that the disk or a quota is used up.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
