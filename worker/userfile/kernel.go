package userfile

// Which files nobody may name: those in which the kernel shows itself, and devices.

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

var (
	// ErrKernel says that a file is the kernel's. The user has to name another one.
	ErrKernel = errors.New("it is in /proc, /sys or /dev, or is a device; of these, only /dev/null, /dev/zero, /dev/full and what is in /dev/shm may be named")
	// ErrLink says that a path leads through a magic link. The user has to name the file itself.
	ErrLink = errors.New("it leads through a link of the kernel, such as /proc/PID/cwd, /proc/self/fd or /dev/stdout, or through too many links: name the file itself")
)

// kernels are the file systems in which the kernel shows itself. The library does not define all of them.
var kernels = map[uint32]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true,
	unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true, unix.BPF_FS_MAGIC: true,
	unix.EFIVARFS_MAGIC: true, unix.PSTOREFS_MAGIC: true, unix.NSFS_MAGIC: true, unix.BINFMTFS_MAGIC: true,
	unix.SELINUX_MAGIC: true, unix.SMACK_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true, unix.RDTGROUP_SUPER_MAGIC: true,
	unix.XENFS_SUPER_MAGIC: true, unix.SOCKFS_MAGIC: true, unix.PIPEFS_MAGIC: true, unix.ANON_INODE_FS_MAGIC: true,
	unix.BDEVFS_MAGIC: true, unix.USBDEVICE_SUPER_MAGIC: true, unix.OPENPROM_SUPER_MAGIC: true, unix.MTD_INODE_FS_MAGIC: true,
	unix.DAXFS_MAGIC: true, unix.DMA_BUF_MAGIC: true, unix.SECRETMEM_MAGIC: true, unix.PID_FS_MAGIC: true,
	unix.AAFS_MAGIC: true, unix.BINDERFS_SUPER_MAGIC: true,
	0x62656570: true, // configfs
	0x19800202: true, // mqueue
	0x65735543: true, // fusectl
	0x6e667364: true, // nfsd
	0x67596969: true, // rpc_pipefs
}

// harmless are the devices that may be named: null, zero and full.
var harmless = map[uint64]bool{unix.Mkdev(1, 3): true, unix.Mkdev(1, 5): true, unix.Mkdev(1, 7): true}

// devices returns the number of the file system /dev, or 0 if it is not one of its own. The kernel reports the same type
// for it as for a tmpfs.
var devices = sync.OnceValue(func() uint64 {
	var root, dev unix.Stat_t
	if unix.Lstat("/", &root) != nil || unix.Lstat("/dev", &dev) != nil || root.Dev == dev.Dev {
		return 0
	}
	return dev.Dev
})

// Check returns ErrKernel if an open file is the kernel's.
func Check(f *os.File) error { return check(int(f.Fd())) }

func check(fd int) error {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return err
	}
	switch is.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		if harmless[uint64(is.Rdev)] { //nolint:unconvert // 32 bits on some machines
			return nil
		}
		return ErrKernel
	case unix.S_IFBLK:
		return ErrKernel
	}
	if own := devices(); own != 0 && uint64(is.Dev) == own { //nolint:unconvert // as above
		return ErrKernel
	}
	var disk unix.Statfs_t
	if err := unix.Fstatfs(fd, &disk); err != nil {
		return err
	}
	if kernels[uint32(disk.Type)] { //nolint:gosec // the kernel's numbers have 32 bits
		return ErrKernel
	}
	return nil
}
