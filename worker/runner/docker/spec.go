package docker

// What an engine is asked for: never more than a task with an image may have.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// stackSize is what the makers of images for GPUs recommend. Memlock is unlimited, because memory that a GPU reads must
	// not be swapped out.
	stackSize = 64 << 20
	nanoCPU   = 1_000_000_000
)

// facts is what is known about an engine.
type facts struct {
	rootless bool
	memory   int64    // of its host
	cdi      []string // names of devices
	noInit   bool     // it has no docker-init
	noLimits bool     // it may not raise resource limits
}

func factsOf(info system.Info) facts {
	f := facts{memory: info.MemTotal}
	f.rootless = slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.Contains(o, "name=rootless") })
	for _, d := range info.DiscoveredDevices {
		if d.Source == "cdi" {
			f.cdi = append(f.cdi, d.ID)
		}
	}
	return f
}

// config returns the part of a container's configuration that does not depend on the host.
func (e *Engine) config(b spawn.Container, img client.ImageInspectResult, f facts) *container.Config {
	c := &container.Config{
		Hostname: hostname(b.Attempt), User: fmt.Sprintf("%d:%d", b.UID, b.GID), Env: b.Env, Image: b.Image, Cmd: b.Command,
		WorkingDir: b.Workdir, AttachStdout: true, AttachStderr: true, Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		Labels: map[string]string{
			labelDir: e.cfg.Dir, labelGeneration: strconv.Itoa(e.cfg.Generation), labelAttempt: b.Attempt.String(),
			labelJob: string(b.Attempt.Job), labelTask: strconv.Itoa(b.Attempt.Task),
		},
	}
	if b.HostNetwork {
		c.Hostname = "" // the node's own name, which resolves there
	}
	if b.Input != nil {
		c.AttachStdin, c.OpenStdin, c.StdinOnce, c.Tty = true, true, true, b.Input.TTY
	}
	if f.rootless {
		c.User = "0:0" // root inside is the engine's own user outside
	}
	if c.WorkingDir == "" && (img.Config == nil || cmp.Or(img.Config.WorkingDir, "/") == "/") {
		c.WorkingDir = b.Scratch
	}
	return c
}

// hostname returns the attempt's name in characters that a host name may have.
func hostname(a job.Attempt) string { return strings.ReplaceAll(a.String(), ".", "-") }

// hostConfig returns what the container gets from its host: no privileges, no capabilities, no way to gain any, and
// its own network and PID namespaces.
//
// A member of a gang has the network of the host, as a process has, because the members meet at the addresses of their hosts,
// and NCCL and MPI open connections at any port. Publishing ports would need to know these. An overlay network would need a
// store, and root on all hosts.
func hostConfig(b spawn.Container, shown []string, f facts) (*container.HostConfig, error) {
	mounts, err := mountsOf(b, shown)
	if err != nil {
		return nil, err
	}
	if b.HostNetwork && f.rootless {
		return nil, errors.New("a gang needs the network of the node, which containers of a rootless Docker engine do not get; keep it off this node with --exclude, or use processes")
	}
	pids, memory, init := int64(b.Limits.PIDs), int64(b.Limits.Memory), !f.noInit
	h := &container.HostConfig{
		// The runner attaches before the start and keeps the output as that of a process, so offsets and bounds are the same and
		// nothing is written twice. The engine's json-file replaces bytes that are not UTF-8, and all its drivers end the last line.
		LogConfig:   container.LogConfig{Type: "none"},
		CapDrop:     []string{"ALL"},
		SecurityOpt: []string{"no-new-privileges"},
		IpcMode:     container.IPCModePrivate,
		Init:        &init,
		Mounts:      mounts,
		ShmSize:     cmp.Or(memory, f.memory) / 2, // the same share of memory as Linux gives /dev/shm on a host
		Resources: container.Resources{
			NanoCPUs: int64(b.Limits.CPUs) * nanoCPU, Memory: memory, MemorySwap: memory, // together: no swap
			PidsLimit: &pids, DeviceRequests: devices(b.GPUs, f),
		},
	}
	if b.HostNetwork {
		h.NetworkMode = "host"
	}
	if b.HasTerminal() {
		h.ConsoleSize = [2]uint{uint(b.Input.Rows), uint(b.Input.Cols)}
	}
	for _, g := range b.Groups {
		if int64(g) != int64(b.GID) {
			h.GroupAdd = append(h.GroupAdd, strconv.FormatUint(uint64(g), 10))
		}
	}
	if !f.rootless && !f.noLimits {
		h.Ulimits = []*container.Ulimit{{Name: "memlock", Soft: -1, Hard: -1}, {Name: "stack", Soft: stackSize, Hard: stackSize}}
	}
	return h, nil
}

// devices requests GPUs by UUID, as CDI devices if the engine knows CDI names for all of them.
func devices(g protocol.GPUs, f facts) []container.DeviceRequest {
	switch unknown := func(n string) bool { return !slices.Contains(f.cdi, n) }; {
	case len(g.IDs) == 0:
		return nil
	case len(g.CDI) > 0 && !slices.ContainsFunc(g.CDI, unknown):
		return []container.DeviceRequest{{Driver: "cdi", DeviceIDs: g.CDI}}
	}
	return []container.DeviceRequest{{Driver: g.Driver, DeviceIDs: g.IDs, Capabilities: [][]string{g.Capabilities}}}
}

// mountsOf returns the container's mounts: its scratch directory, muster's own files and what the driver of its GPUs needs
// at their host paths, and the user's mounts, whose source is the entry of shown.
func mountsOf(b spawn.Container, shown []string) ([]mount.Mount, error) {
	out := []mount.Mount{{Type: mount.TypeBind, Source: b.Scratch, Target: b.Scratch}}
	for _, f := range b.Files {
		out = append(out, mount.Mount{Type: mount.TypeBind, Source: f, Target: f, ReadOnly: true})
	}
	for _, dir := range b.GPUs.Mounts {
		out = append(out, mount.Mount{Type: mount.TypeBind, Source: dir, Target: dir})
	}
	for i, text := range b.Mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			return nil, err
		}
		out = append(out, mount.Mount{Type: mount.TypeBind, Source: shown[i], Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return out, nil
}

// allowed returns the real path of a mount's source, if it lies below one of the directories that this host allows
// for mounts.
func allowed(m job.Mount, source *os.File, dirs []string) (string, error) {
	if source == nil {
		return "", fmt.Errorf("mount %s: no such file or directory on this node", m.Source)
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", source.Fd()))
	if err != nil {
		return "", fmt.Errorf("mount %s: %w", m.Source, cause(err))
	}
	var roots []string
	for _, d := range dirs {
		if root, err := filepath.EvalSymlinks(d); err == nil {
			roots = append(roots, root)
		}
	}
	if !(job.Mount{Source: real}).Below(roots) {
		which := "no directory"
		if len(dirs) > 0 {
			which = "only " + strings.Join(dirs, ", ")
		}
		return "", fmt.Errorf("mount %s: not allowed, this node lets containers see %s (its setting docker-mount)", m.Source, which)
	}
	return real, nil
}

// cause strips the path from an error, because the message already names it.
func cause(err error) error {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		return at.Err
	}
	return err
}
