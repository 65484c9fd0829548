// Package simgpu simulates GPUs: devices that compute nothing, but are listed, offered and given to tasks like real
// ones. Their names and UUIDs show that they are simulated.
package simgpu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvidia"
	"github.com/musterhq/muster/job"
)

const (
	prefix = "sim:"
	// maxDevices bounds a simulated host. It is four times the largest real host, and the links between all devices
	// still fit into a message.
	maxDevices = 64
	// maxSpec bounds the text that Parse accepts.
	maxSpec = 1024
	// island is the number of devices that NVLink joins on a simulated host.
	island = 8
	// socket is the number of devices without NVLink on a processor socket.
	socket = 4
	// idleMilliwatts and idleCelsius are what a simulated device reports.
	idleMilliwatts = 50_000
	idleCelsius    = 30
)

// known lists the models whose memory need not be given, with their NVLinks.
var known = map[string]struct {
	gib    int
	lanes  int // NVLinks of a device; 0: PCIe only
	cuda   string
	driver string
}{
	"a100": {40, 12, "8.0", "NVIDIA A100"}, "a800": {80, 8, "8.0", "NVIDIA A800"}, "h100": {80, 18, "9.0", "NVIDIA H100"},
	"h800": {80, 8, "9.0", "NVIDIA H800"}, "h200": {141, 18, "9.0", "NVIDIA H200"}, "h20": {96, 18, "9.0", "NVIDIA H20"},
	"b200": {180, 18, "10.0", "NVIDIA B200"}, "b300": {288, 18, "10.3", "NVIDIA B300"}, "v100": {16, 6, "7.0", "Tesla V100"},
	"p100": {16, 0, "6.0", "Tesla P100"}, "t4": {16, 0, "7.5", "Tesla T4"}, "a10": {24, 0, "8.6", "NVIDIA A10"},
	"a30": {24, 0, "8.0", "NVIDIA A30"}, "a40": {48, 0, "8.6", "NVIDIA A40"}, "l4": {24, 0, "8.9", "NVIDIA L4"},
	"l40s": {48, 0, "8.9", "NVIDIA L40S"}, "rtx4090": {24, 0, "8.9", "NVIDIA GeForce RTX 4090"}, "rtx5090": {32, 0, "12.0", "NVIDIA GeForce RTX 5090"},
}

const errUse = "write it like sim:8xH100-80GB or sim:4xH100,2xT4-16GB"

var part = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:([0-9]{1,6})x)?([A-Za-z][A-Za-z0-9. ]{0,31})(?:-([0-9]{1,4})[Gg]i?[Bb])?$`)
})

// Driver lists simulated devices.
type Driver struct {
	devices []gpu.Device
	kernel  *nvidia.Kernel
	script  string // file of scripted faults, or empty
	closed  atomic.Bool

	mu       sync.Mutex
	statuses []gpu.Status // guarded by mu
}

// Parse returns a driver for a spec such as "sim:8xH100-80GB" or "sim:4xH100-80GB,2xT4-16GB". The UUIDs are derived
// from the spec and the seed, such as the host's name, so they stay the same after a restart.
//
// For tests, "?faults=FILE" after the devices names a file, such as a named pipe, whose lines are carried out as they
// arrive: see Faults.
func Parse(spec, seed string) (*Driver, error) {
	list, ok := strings.CutPrefix(spec, prefix)
	list, script, _ := strings.Cut(list, faultsOption)
	if !ok || len(spec) > maxSpec {
		return nil, fmt.Errorf("simulated GPUs %.60q: %s", spec, errUse)
	}
	var devices []gpu.Device
	for text := range strings.SplitSeq(list, ",") {
		more, err := parsePart(strings.TrimSpace(text), maxDevices-len(devices))
		if err != nil {
			return nil, fmt.Errorf("simulated GPUs %.60q: %w", spec, err)
		}
		devices = append(devices, more...)
	}
	for i := range devices {
		devices[i].Index = i
		devices[i].UUID = uuid(seed, devices[i].Class, i)
		devices[i].NUMA = i / socket % 2
		devices[i].Socket = devices[i].NUMA + 1
		devices[i].PCI = fmt.Sprintf("sim:%02x:00.0", i)
	}
	for i := range devices {
		devices[i].Links = links(devices, i)
	}
	d := &Driver{devices: devices, kernel: nvidia.NewKernel("/"), script: script}
	for _, dev := range devices {
		d.statuses = append(d.statuses, gpu.Status{
			UUID: dev.UUID, Temperature: idleCelsius, PowerMilli: idleMilliwatts, Health: gpu.Healthy, Recovery: gpu.RecoveryNone,
		})
	}
	return d, nil
}

// None returns the driver of a host that offers no GPUs.
func None() *Driver { return &Driver{kernel: nvidia.NewKernel("/")} }

// parsePart parses "8xH100-80GB"; at most room devices.
func parsePart(text string, room int) ([]gpu.Device, error) {
	m := part().FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%.40q: %s", text, errUse)
	}
	n := 1
	if m[1] != "" {
		n, _ = strconv.Atoi(m[1]) // six digits at most
	}
	if n < 1 || n > room {
		return nil, fmt.Errorf("%.40q: want 1 to %d GPUs in all", text, maxDevices)
	}
	name := gpu.Class(m[2], 0)
	k, isKnown := known[name]
	gib := k.gib
	if m[3] != "" {
		gib, _ = strconv.Atoi(m[3])
	}
	switch {
	case name == "":
		return nil, fmt.Errorf("%.40q: %q is not a model name", text, m[2])
	case gib == 0 && !isKnown:
		return nil, fmt.Errorf("%.40q: the memory of a %s is not known; write it like %s-80GB", text, m[2], m[2])
	case gib == 0:
		return nil, fmt.Errorf("%.40q: a GPU without memory", text)
	}
	model := k.driver
	if !isKnown {
		model = m[2]
	}
	model = fmt.Sprintf("Simulated %s %dGB", model, gib)
	memory := job.Size(gib) << 30
	one := gpu.Device{Model: model, Class: gpu.Class(model, memory), Memory: memory, Compute: k.cuda, Driver: "simulated", Simulated: true}
	return slices.Repeat([]gpu.Device{one}, n), nil
}

// uuid returns a UUID of the usual form that shows that it is simulated.
func uuid(seed, class string, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", seed, class, i))
	h := hex.EncodeToString(sum[:16])
	return "GPU-sim-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// links returns the links of device i: NVLink between neighbours of a model that has it, otherwise PCIe with two
// devices behind each switch and four on each socket.
func links(devices []gpu.Device, i int) []gpu.Link {
	var all []gpu.Link
	for j, to := range devices {
		if j == i {
			continue
		}
		l := gpu.Link{To: to.UUID, Kind: gpu.LinkSystem}
		lanes := known[strings.SplitN(to.Class, "-", 2)[0]].lanes
		switch {
		case to.Class == devices[i].Class && lanes > 0 && i/island == j/island:
			l.Kind, l.NVLinks = gpu.LinkNVLink, lanes
		case i/2 == j/2:
			l.Kind = gpu.LinkSwitch
		case i/socket == j/socket:
			l.Kind = gpu.LinkBridge
		case devices[i].NUMA == to.NUMA:
			l.Kind = gpu.LinkNUMA
		}
		all = append(all, l)
	}
	return all
}

// List returns the devices.
func (d *Driver) List(ctx context.Context) ([]gpu.Device, error) {
	if err := d.state(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(d.devices), nil
}

// Status returns healthy and idle devices, except for scripted faults.
func (d *Driver) Status(ctx context.Context) ([]gpu.Status, error) {
	if err := d.state(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.statuses), nil
}

// Grant returns what a task with these devices gets, as on a host with real devices. The task gets none of the real
// devices that the host may have.
func (d *Driver) Grant(devices []gpu.Device, _ job.Resources) gpu.Grant {
	return d.kernel.Grant(devices)
}

func (d *Driver) state(ctx context.Context) error {
	if d.closed.Load() {
		return fmt.Errorf("simgpu: %w", gpu.ErrClosed)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("simgpu: %w", ctx.Err())
	}
	return nil
}

// Close makes all later calls fail.
func (d *Driver) Close() error {
	d.closed.Store(true)
	return nil
}
