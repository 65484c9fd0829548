package nvidia

// Device files: which of them a program needs for its GPUs, and which are closed to it.
//
// The major number of the GPUs is fixed. The kernel assigns the other major numbers when it loads a module, and lists
// them in /proc/devices. A MIG instance has no device file of its own. A program needs that of its GPU, and one for
// each of two capabilities: access to the GPU instance, and to the compute instance.
// /proc/driver/nvidia-caps/mig-minors has their minor numbers for all instances that there can ever be. An instance whose
// numbers are not found is not offered.
//
// A major number is closed as a whole, with the task's own minor numbers as exceptions. So it does not matter when a file
// is made, or where. All other devices stay open, because tasks use some that muster does not know (RDMA, FUSE). nvidia-uvm
// and the IMEX channels stay open to tasks with GPUs: they may be loaded at their first use, and are useless without a GPU.
// A task of root has all capabilities of MIG, whatever it may open: the kernel gives them to CAP_SYS_ADMIN.

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
)

const (
	// gpuMajor is the major number of the GPUs and of nvidiactl. It is fixed, so it can be closed before the driver is
	// loaded.
	gpuMajor   = 195
	ctlMinor   = 255
	modeMinor  = 254
	gpuMinors  = 256
	capMinors  = 8192 // the driver of today has 4,323
	fileMinors = 256  // of all other files

	modules      = "nvidia" // what the names of all modules of the driver begin with
	moduleUVM    = "nvidia-uvm"
	moduleCaps   = "nvidia-caps"
	moduleImex   = "nvidia-caps-imex-channels"
	maxProcLines = 1 << 16
)

// eachLine passes the lines of a file to do until do returns false. A file that cannot be read has none.
func eachLine(path string, do func(line string) bool) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 0; n < maxProcLines && lines.Scan() && do(lines.Text()); n++ {
	}
}

// Nodes returns the device files that a program needs for a GPU.
func (k *Kernel) Nodes(minor int) []gpu.Node {
	nodes := []gpu.Node{
		{Path: fmt.Sprintf("/dev/nvidia%d", minor), Major: gpuMajor, Minor: uint32(minor)}, //nolint:gosec // it is a minor number
		{Path: "/dev/nvidiactl", Major: gpuMajor, Minor: ctlMinor},
		{Path: "/dev/nvidia-modeset", Major: gpuMajor, Minor: modeMinor},
	}
	if uvm, loaded := k.numbers()[moduleUVM]; loaded {
		nodes = append(nodes, gpu.Node{Path: "/dev/nvidia-uvm", Major: uvm}, gpu.Node{Path: "/dev/nvidia-uvm-tools", Major: uvm, Minor: 1})
	}
	return nodes
}

// Capabilities returns the device files that a program needs for a MIG instance besides those of its GPU.
func (k *Kernel) Capabilities(gpuMinor, gpuInstance, computeInstance int) ([]gpu.Node, error) {
	major, loaded := k.numbers()[moduleCaps]
	if !loaded { // this driver then gives access by files in /proc
		return nil, nil
	}
	instance := fmt.Sprintf("gpu%d/gi%d", gpuMinor, gpuInstance)
	names := []string{instance + "/access", fmt.Sprintf("%s/ci%d/access", instance, computeInstance)}
	nodes := make([]gpu.Node, 0, len(names))
	const path = "proc/driver/nvidia-caps/mig-minors"
	eachLine(filepath.Join(k.root, path), func(line string) bool {
		name, number, _ := strings.Cut(line, " ")
		minor, err := strconv.ParseUint(number, 10, 20)
		if err == nil && slices.Contains(names, name) {
			nodes = append(nodes, gpu.Node{Path: fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor), Major: major, Minor: uint32(minor)})
		}
		return len(nodes) < len(names)
	})
	if len(nodes) < len(names) {
		return nil, fmt.Errorf("/%s does not have %s", path, strings.Join(names, " and "))
	}
	return nodes, nil
}

// closed returns the device files of the driver that a task with these devices may not open. If the files of one of the
// devices are not known, none is closed.
func (k *Kernel) closed(devices []gpu.Device) []gpu.Closed {
	open, uses := map[uint32][]uint32{}, false
	for _, d := range devices {
		switch {
		case d.Simulated:
			continue
		case d.Nodes == nil:
			return nil
		}
		uses = true
		for _, n := range d.Nodes {
			if !slices.Contains(open[n.Major], n.Minor) {
				open[n.Major] = append(open[n.Major], n.Minor)
			}
		}
	}
	minors := map[uint32]uint32{gpuMajor: gpuMinors}
	for module, major := range k.numbers() {
		switch {
		case uses && module == moduleImex: // GPUs of several hosts share memory through these
		case uses && module == moduleUVM: // it may have been loaded since the GPUs were listed
		case module == moduleCaps:
			minors[major] = capMinors
		default:
			minors[major] = fileMinors
		}
	}
	all := make([]gpu.Closed, 0, len(minors))
	for major, n := range minors {
		slices.Sort(open[major])
		all = append(all, gpu.Closed{Major: major, Minors: n, Open: open[major]})
	}
	slices.SortFunc(all, func(a, b gpu.Closed) int { return int(a.Major) - int(b.Major) })
	return all
}
