package machine

// Limits of this process.

import "golang.org/x/sys/unix"

// openFiles is how many files a process may have open, and to how many it may
// raise that.
func openFiles() (now, most uint64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, err
	}
	return l.Cur, l.Max, nil
}
