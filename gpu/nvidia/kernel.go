package nvidia

// The major numbers that the kernel gave the modules of the driver.

import (
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Kernel knows the device numbers of a host's driver. Its methods may be called at the same time.
//
// The kernel takes about 0.1 ms to list its devices, and each start of a task asks for them. So they are read again only
// when a module was loaded or unloaded. Where /sys/module cannot be seen, that is unknown, and they are read each time.
type Kernel struct {
	root string // of the file system

	mu     sync.Mutex
	loaded loaded            // guarded by mu: when majors were read
	majors map[string]uint32 // guarded by mu: by module; never changed, only replaced
}

// NewKernel returns the kernel whose /proc, /sys and /dev are below root.
func NewKernel(root string) *Kernel { return &Kernel{root: root} }

// loaded tells two sets of modules apart. The zero value is unknown.
type loaded struct {
	all     uint64    // number of modules, as the links of /sys/module
	drivers [3]uint64 // inode of the directory of each of sysModules; 0: not loaded
}

// sysModules are the driver's modules that register devices. The kernel gives a module that is loaded again another inode.
var sysModules = [len(loaded{}.drivers)]string{"nvidia", "nvidia_uvm", "nvidia_fs"}

// modules returns the modules that are loaded now.
func (k *Kernel) modules() loaded {
	var now loaded
	var is unix.Stat_t
	dir := filepath.Join(k.root, "sys/module")
	if unix.Stat(dir, &is) != nil {
		return loaded{}
	}
	now.all = uint64(is.Nlink) //nolint:unconvert,nolintlint // 32 bits on other processors
	for i, name := range sysModules {
		if unix.Stat(dir+"/"+name, &is) == nil {
			now.drivers[i] = is.Ino
		}
	}
	return now
}

// numbers returns the major numbers of the driver, by module. The caller must not change them.
func (k *Kernel) numbers() map[string]uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Before the numbers: a module that is loaded meanwhile makes the next call read again.
	now := k.modules()
	if now == (loaded{}) || now != k.loaded {
		k.loaded, k.majors = now, readMajors(k.root)
	}
	return k.majors
}

func readMajors(root string) map[string]uint32 {
	all := map[string]uint32{}
	eachLine(filepath.Join(root, "proc/devices"), func(line string) bool {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "Block" {
			return false // block devices have numbers of their own
		}
		if len(fields) == 2 && strings.HasPrefix(fields[1], modules) {
			if n, err := strconv.ParseUint(fields[0], 10, 32); err == nil {
				all[fields[1]] = uint32(n)
			}
		}
		return true
	})
	return all
}
