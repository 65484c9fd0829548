package hostinfo

// Resource limits of this process.

import "golang.org/x/sys/unix"

// openFiles returns the soft and the hard limit of open files.
func openFiles() (now, most uint64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, err
	}
	return l.Cur, l.Max, nil
}
