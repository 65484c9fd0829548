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
	// kcmpFiles makes kcmp(2) compare the descriptors of two threads; see linux/kcmp.h.
	kcmpFiles = 2
)

// heldWait is how long a measurement waits for a search. A search may block on the memory maps of processes, which their
// user can lock for any time. Such a search goes on by itself, and the task gets no second one meanwhile.
const heldWait = time.Second

// held is what the processes of a task hold of deleted files, as it was last found.
type held struct {
	size  job.Size
	files int64
	next  chan held // of a search that has not ended
}

// take searches again. It leaves the last result if the search does not end in time.
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
	if len(pids) == 0 {
		return held{}
	}
	dir, err := openIn(unix.AT_FDCWD, path)
	if err != nil {
		return held{} // it is gone
	}
	defer dir.Close()
	h := holders{in: placeOf(dir), seen: map[inode]bool{}}
	for _, pid := range pids {
		own := "/proc/" + strconv.Itoa(pid)
		h.add(own + "/fd")
		h.add(own + "/map_files")
		eachName(own+"/task", func(_ int, name string) {
			tid, err := strconv.Atoi(name)
			if err != nil || tid == pid {
				return
			}
			// Nearly always all threads of a process share their descriptors.
			if order, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(pid), uintptr(tid), kcmpFiles, 0, 0, 0); errno == 0 && order != 0 {
				h.add(own + "/task/" + name + "/fd")
			}
		})
	}
	return held{size: h.total, files: h.files}
}

// holders adds up deleted files.
type holders struct {
	in    place
	seen  map[inode]bool
	total job.Size
	files int64
}

// add adds what the links in a directory of /proc lead to. A file system that does not answer is not asked.
func (h *holders) add(dir string) {
	var target [unix.PathMax]byte
	eachName(dir, func(at int, name string) {
		n, err := unix.Readlinkat(at, name, target[:])
		if err != nil || !strings.HasSuffix(string(target[:n]), deletedMark) && n < len(target)-1 {
			return
		}
		var s unix.Statx_t
		if unix.Statx(at, name, asIs, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &s) != nil || s.Nlink > 0 {
			return
		}
		is := placeIn(&s)
		file := inode{is.dev, s.Ino}
		if is.dev != h.in.dev && (is.old || is.mount != h.in.mount) || h.seen[file] {
			return
		}
		if len(h.seen) < maxSeen {
			h.seen[file] = true
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
