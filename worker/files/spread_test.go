package files

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCopiesAreSpreadOverTheDisk(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	var fs unix.Statfs_t
	if err := unix.Statfs(c.Dir, &fs); err != nil || fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Skip("the directory for tests is not on ext4, the only file system with the attribute")
	}
	if err := makeStaging(c); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(c.staging())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil || flags&topDir == 0 {
		t.Errorf("attributes of %s = %#x, %v; want T", c.staging(), flags, err)
	}
}
