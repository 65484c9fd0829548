package scratch

// The disk space of files that were deleted and are still open: no directory has them, and they take space until the last
// process that holds them ends.

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

const (
	// deletedMark ends the name of a deleted file in /proc.
	deletedMark = " (deleted)"
	// maxHeld bounds the files that are remembered so that none counts twice. Beyond it they do.
	maxHeld = 1 << 16
	// kcmpFiles has kcmp(2) compare the descriptors of two threads; see linux/kcmp.h.
	kcmpFiles = 2
)

// heldWait is how long a measurement waits for a search. It waits for the memory maps of processes, which their user may
// lock for as long as he likes. Such a search goes on by itself, and the task has no second one meanwhile.
const heldWait = time.Second

// held is what the processes of a task hold of deleted files, as it was last found.
type held struct {
	size  job.Size
	files int64
	next  chan held // of a search that has not ended
}

// take searches again.
func (h *held) take(pids []int, path string) {
	wait := time.Duration(0)
	if h.next == nil {
		next := make(chan held, 1)
		go func() { next <- heldBy(pids, path) }()
		h.next, wait = next, heldWait
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case *h = <-h.next:
	case <-late.C:
	}
}

// heldBy returns the disk space and the number of the deleted files that processes hold open or have mapped, on the file
// system of the directory path. Those that are only in a socket on their way to another process are not seen.
func heldBy(pids []int, path string) held {
	var is unix.Stat_t
	if len(pids) == 0 || unix.Lstat(path, &is) != nil {
		return held{}
	}
	h := holders{dev: is.Dev, seen: map[uint64]bool{}}
	for _, pid := range pids {
		own := "/proc/" + strconv.Itoa(pid)
		h.in(own + "/fd")
		h.in(own + "/map_files")
		eachName(own+"/task", func(_ int, name string) {
			tid, err := strconv.Atoi(name)
			if err != nil || tid == pid {
				return
			}
			// Nearly always all threads of a process share their descriptors.
			if order, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(pid), uintptr(tid), kcmpFiles, 0, 0, 0); errno == 0 && order != 0 {
				h.in(own + "/task/" + name + "/fd")
			}
		})
	}
	return held{size: h.total, files: h.files}
}

// holders adds up deleted files.
type holders struct {
	dev   uint64
	seen  map[uint64]bool // by inode
	total job.Size
	files int64
}

// in adds what the links in a directory of /proc lead to. A file system that does not answer is not asked.
func (h *holders) in(dir string) {
	var target [unix.PathMax]byte
	eachName(dir, func(at int, name string) {
		n, err := unix.Readlinkat(at, name, target[:])
		if err != nil || !strings.HasSuffix(string(target[:n]), deletedMark) && n < len(target)-1 {
			return
		}
		var s unix.Statx_t
		if unix.Statx(at, name, unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &s) != nil ||
			s.Nlink > 0 || unix.Mkdev(s.Dev_major, s.Dev_minor) != h.dev || h.seen[s.Ino] {
			return
		}
		if len(h.seen) < maxHeld {
			h.seen[s.Ino] = true
		}
		h.total += job.Size(s.Blocks) * 512 //nolint:gosec // no disk has 2^63 bytes
		h.files++
	})
}

// eachName calls f with each name in a directory, and a descriptor of it.
func eachName(path string, f func(at int, name string)) {
	dir, err := os.Open(path)
	if err != nil {
		return // the process has ended
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(removeNames)
		for _, name := range names {
			f(int(dir.Fd()), name)
		}
		if err != nil {
			return
		}
	}
}
