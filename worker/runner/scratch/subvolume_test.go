package scratch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// subvolume makes a subvolume of Btrfs, like any user may, by BTRFS_IOC_SUBVOL_CREATE of linux/btrfs.h.
func subvolume(t *testing.T, path string) {
	t.Helper()
	args := struct {
		_    int64
		name [4088]byte
	}{}
	copy(args.name[:], filepath.Base(path))
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), 0x5000940e, uintptr(unsafe.Pointer(&args))); errno != 0 {
		t.Fatalf("got %v, want 0", errno)
	}
}

// TestSubvolumesCountAndAreRemoved checks that subvolumes of Btrfs, which have devices of their own, count and are
// removed: nested ones, ones with many directories, and read-only ones.
func TestSubvolumesCountAndAreRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	parent := t.TempDir()
	image, disk := filepath.Join(parent, "image"), filepath.Join(parent, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 256<<20), os.Mkdir(disk, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"mkfs.btrfs -q " + image, "mount -o loop " + image + " " + disk} {
		words := strings.Fields(command)
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no Btrfs here: %s: %s, %v", command, out, err)
		}
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	b := holds(t, disk, "amy", 1, 1)
	dir := b.Path
	at := dir
	for _, name := range []string{"one", "e", "two", "three"} {
		if at = filepath.Join(at, name); name == "e" {
			if err := os.Mkdir(at, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		subvolume(t, at)
		dig(t, at, 2*removeDepth)
		if err := os.WriteFile(filepath.Join(at, "x"), make([]byte, 3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("none", filepath.Join(dir, "one", "e"), "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	unix.Sync() // blocks are known once the files are written
	if size := SizeOf(dir); size>>20 != 1+3 {
		t.Errorf("beside a mount: %s, want 4 MiB", size)
	}
	if err := Remove(dir); !errors.Is(err, unix.EBUSY) {
		t.Errorf("with a mount in a subvolume: %v, want unix.EBUSY", err)
	}
	if err := unix.Unmount(filepath.Join(dir, "one", "e"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if size := SizeOf(dir); size>>20 != 6 {
		t.Errorf("%s, want 6 MiB of subvolumes two and three", size)
	}
	open, err := unix.Open(filepath.Join(at), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Write(open, make([]byte, 2<<20)); n != 2<<20 || err != nil {
		t.Fatalf("got %v, %v, want %v and no error", n, err, 2<<20)
	}
	if err := unix.Fsync(open); err != nil {
		t.Fatal(err)
	}
	if h := heldBy([]int{os.Getpid()}, dir); h.size>>20 != 2 || h.files != 1 {
		t.Errorf("held of a subvolume: %+v, want 2 MiB in 1 file", h)
	}
	unix.Close(open)
	m := Meter{}
	b.Bound = job.Size(5 << 20)
	if over, _ := m.Measure(disk, []Bounded{b}, time.Now()); len(over) != 1 {
		t.Errorf("%+v, want 1 of them", over)
	}
	two, err := os.Open(filepath.Join(dir, "one", "e", "two"))
	if err != nil {
		t.Fatal(err)
	}
	readOnly := uint64(2) // BTRFS_SUBVOL_RDONLY
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, two.Fd(), setSubvolumeFlags, uintptr(unsafe.Pointer(&readOnly)))
	two.Close()
	if errno != 0 {
		t.Fatalf("got %v, want 0", errno)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v, want os.ErrNotExist", err)
	}
}
