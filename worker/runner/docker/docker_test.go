package docker

// Tests that need no engine: the requests to it, the meaning of its messages, and the notes of a dead runner. The tests
// with a real engine are in e2e.

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

func box(t *testing.T) spawn.Container {
	t.Helper()
	a, err := job.ParseAttempt("k3v9x0q2mz-0000000000000.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return spawn.Container{
		Container: protocol.Container{Image: "a:1"}, Limits: protocol.Limits{CPUs: 3, Memory: 8 << 30, PIDs: 99}, Attempt: a, UID: 1000, GID: 100, Groups: []uint32{100, 44},
		Scratch: t.TempDir(), Cut: func() {},
	}
}

func TestContainersAreConfined(t *testing.T) {
	b := box(t)
	b.GPUs = protocol.GPUs{
		IDs: []string{"GPU-a", "GPU-b"}, CDI: []string{"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"},
		Driver: "nvidia", Capabilities: []string{"gpu", "compute", "utility"},
	}
	h, err := hostConfig(b, nil, facts{})
	if err != nil {
		t.Fatal(err)
	}
	if h.Privileged || len(h.CapAdd) > 0 || !slices.Equal(h.CapDrop, []string{"ALL"}) || !slices.Equal(h.SecurityOpt, []string{"no-new-privileges"}) ||
		h.NetworkMode.IsHost() || h.PidMode.IsHost() || !h.IpcMode.IsPrivate() || h.UsernsMode.IsHost() {
		t.Errorf("the container is not confined: %+v", h)
	}
	if h.NanoCPUs != 3e9 || h.Memory != 8<<30 || h.MemorySwap != h.Memory || h.ShmSize != 4<<30 || *h.PidsLimit != 99 {
		t.Errorf("limits: %+v, want those of the task", h.Resources)
	}
	if !slices.Equal(h.GroupAdd, []string{"44"}) {
		t.Errorf("groups %v, want %v", h.GroupAdd, []string{"44"})
	}
	if r := h.DeviceRequests; len(r) != 1 || r[0].Driver != "nvidia" || !slices.Equal(r[0].DeviceIDs, b.GPUs.IDs) || !slices.Equal(r[0].Capabilities[0], b.GPUs.Capabilities) {
		t.Errorf("GPUs: %+v, want those of the task", r)
	}
	f := factsOf(system.Info{
		SecurityOptions: []string{"name=seccomp,profile=builtin", "name=rootless"}, MemTotal: 64 << 30,
		DiscoveredDevices: []system.DeviceInfo{{Source: "cdi", ID: "nvidia.com/gpu=GPU-a"}, {Source: "cdi", ID: "nvidia.com/gpu=GPU-b"}},
	})
	b.Limits.Memory = 0
	if h, err = hostConfig(b, nil, f); err != nil {
		t.Fatal(err)
	}
	if r := h.DeviceRequests; len(r) != 1 || r[0].Driver != "cdi" || r[0].DeviceIDs[1] != "nvidia.com/gpu=GPU-b" {
		t.Errorf(`GPUs by CDI %+v, want 1 of them, [0].Driver "cdi" and [0].DeviceIDs[1] "nvidia.com/gpu=GPU-b"`, r)
	}
	if len(h.Ulimits) != 0 || h.ShmSize != 32<<30 || h.Memory != 0 {
		t.Errorf("rootless and without a memory limit: %+v, want no Ulimits, ShmSize %v and Memory 0", h, 32<<30)
	}
	b.HostNetwork = true
	if h, err = hostConfig(b, nil, facts{}); err != nil || !h.NetworkMode.IsHost() || h.Privileged || !slices.Equal(h.CapDrop, []string{"ALL"}) || h.PidMode.IsHost() || h.UTSMode.IsHost() {
		t.Errorf("a member of a gang: %+v, %v, want the network of the host and else confined", h, err)
	}
	if _, err := hostConfig(b, nil, f); err == nil || !strings.Contains(err.Error(), "rootless") {
		t.Errorf(`a member of a gang on a rootless engine: %v, want an error and "rootless" in it`, err)
	}
	f.cdi = f.cdi[:1]
	if r := devices(b.GPUs, f); r[0].Driver != "nvidia" {
		t.Errorf(`an engine that knows one of two by CDI: %+v, want [0].Driver "nvidia"`, r)
	}
}

func TestOnlyAllowedDirectoriesAreMounted(t *testing.T) {
	root := t.TempDir()
	open, closed := filepath.Join(root, "open"), filepath.Join(root, "closed")
	for _, d := range []string{open, closed} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{filepath.Join(open, "out"): closed, filepath.Join(root, "alias"): open} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ mount, allowed, want string }{
		{open + ":/in:ro", open, ""},
		{open + ":/in", root, ""},
		{root + "/alias:/in", open, ""},
		{open + ":/in", root + "/alias", ""},
		{closed + ":/in", open, "not allowed, this node lets containers see only " + open},
		{open + "/out:/in", open, "not allowed"},
		{open + "/absent:/in", open, "no such file or directory on this node"},
		{open + ":/in", "", "lets containers see no directory"},
	} {
		b := box(t)
		b.Mounts, b.Allowed = []string{c.mount}, slices.DeleteFunc([]string{c.allowed}, func(d string) bool { return d == "" })
		if f, err := os.OpenFile(strings.Split(c.mount, ":")[0], unix.O_PATH, 0); err == nil {
			defer f.Close()
			b.Sources = spawn.Sources{f}
		} else {
			b.Sources = spawn.Sources{nil}
		}
		shown, _, err := new(pins).show(b, facts{rootless: true})
		var all []mount.Mount
		if err == nil {
			all, err = mountsOf(b, shown)
		}
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s under %s: %v, want %q", c.mount, c.allowed, err, c.want)
		case c.want == "" && (err != nil || len(all) != 2 || all[1].Source != open || all[1].ReadOnly != strings.HasSuffix(c.mount, ":ro")):
			t.Errorf("%s under %s: %+v, %v, want one mount of the directory", c.mount, c.allowed, all, err)
		}
	}
}

// TestContainerSeesTheDirectoryThatWasChecked checks that a container sees the directory that was checked, even if its
// user then replaces it.
func TestContainerSeesTheDirectoryThatWasChecked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	root := t.TempDir()
	open, secret := filepath.Join(root, "open"), filepath.Join(root, "secret")
	for _, d := range []string{open, secret} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "name"), []byte(filepath.Base(d)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := protocol.Dir(t.TempDir())
	p := &pins{dir: dir.Pins(1)}
	t.Cleanup(func() {
		if err := dir.Remove(1); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(string(dir)); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v, want no error and none", left, err)
		}
	})
	b := box(t)
	b.Allowed, b.Mounts = []string{open}, []string{open + ":/in", open + "/name:/name:ro"}
	for _, path := range []string{open, open + "/name"} {
		f, err := os.OpenFile(path, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b.Sources = append(b.Sources, f)
	}
	shown, places, err := p.show(b, facts{})
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs the right to mount")
	}
	if err != nil || len(shown) != 2 || !slices.Equal(shown, places) {
		t.Fatalf("%q, %q, %v, want the same 2", shown, places, err)
	}
	if err := errors.Join(os.Rename(open, root+"/away"), os.Symlink(secret, open)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{shown[0] + "/name", shown[1]} {
		if text, err := os.ReadFile(path); err != nil || string(text) != "open" {
			t.Errorf(`%s shows %q, %v, want no error and "open"`, path, text, err)
		}
	}
	// A directory that was moved away before the check is not shown.
	if _, _, err := p.show(b, facts{}); err == nil || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf(`%v, want an error and "not allowed" in it`, err)
	}
	if err := p.unpin(places); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(string(dir)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v, want no error and none", left, err)
	}
	// The cleanup above removes the mounts that a dead runner leaves.
	b.Allowed = []string{root}
	if _, _, err := p.show(b, facts{}); err != nil {
		t.Error(err)
	}
	if err := unseen(errors.New("bind source path does not exist: "+places[0]), places, b.Mounts); !strings.Contains(err.Error(), "does not see the mounts") {
		t.Errorf(`got %v, want "does not see the mounts" in it`, err)
	}
}

// An engine's error about a mount names the user's paths. It says that the engine lacks them only if that is so.
func TestErrorsOfMountsNameTheUsersPaths(t *testing.T) {
	places, mounts := []string{"/run/pins/1", "/run/pins/12"}, []string{"/data:/data", "/share:/etc/passwd"}
	const before = `OCI runtime create failed: error mounting "/run/pins/12" to rootfs at "/etc/passwd": mount /run/pins/12:/etc/passwd (via /proc/self/fd/6), flags: 0x5000: `
	for text, want := range map[string]string{
		"bind source path does not exist: /run/pins/12":        "the Docker engine does not see the mounts of this node's daemon",
		before + "not a directory: unknown: Are you trying to": "mount /share: the Docker engine cannot mount it at /etc/passwd: one of them is a directory, and the other a file",
		before + "mkdir /x: read-only file system: unknown":    "mount /share: the Docker engine cannot mount it at /etc/passwd: the target is in a part of the container that cannot be written",
		"no such image": "no such image",
	} {
		if err := unseen(errors.New(text), places, mounts); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
	if err := unseen(nil, places, mounts); err != nil {
		t.Error(err)
	}
	if exit := notStarted(errors.New("Error response from daemon: No command specified")); exit.Code != codeNotExecutable || !strings.Contains(exit.Reason, "give one after --") {
		t.Errorf(`%+v, want Code %v and Reason "give one after --" in it`, exit, codeNotExecutable)
	}
}

// An engine that is away or short of something concerns only those who use it. The code with which the host pauses
// itself would exclude all other tasks too.
func TestFailuresOfTheEngineDoNotPauseTheHost(t *testing.T) {
	_, away := Probe(t.Context(), "unix:///does/not/exist.sock")
	for name, err := range map[string]error{
		"away": away, "silent": errSilent, "full": errors.New("write /var/lib/docker/tmp/1: no space left on device"),
		"processes": errors.New("OCI runtime create failed: fork/exec /proc/self/exe: resource temporarily unavailable: unknown"),
	} {
		if x := notStarted(err); x.State != job.NodeFail || x.Code != codeNotExecutable || !x.FailedStart() {
			t.Errorf("%s: %s with code %d: %s, want NODE_FAIL as a failed start without a pause", name, x.State, x.Code, x.Reason)
		}
	}
}

func TestProgressOfAPull(t *testing.T) {
	p := progress{image: "a:1", layers: map[string]*layer{}}
	for _, c := range []struct{ line, want string }{
		{`{"status":"Pulling from library/a","id":"1"}`, "pulling a:1: 0 of 0 layers"},
		{`{"status":"Already exists","id":"aa"}`, "pulling a:1: 1 of 1 layers"},
		{`{"status":"Pulling fs layer","id":"bb"}`, "pulling a:1: 1 of 2 layers"},
		{`{"status":"Downloading","id":"bb","progressDetail":{"current":500000,"total":2000000}}`, "pulling a:1: 1 of 2 layers, 0.5 of 2.0 MB"},
		{`{"status":"Download complete","id":"bb"}`, "pulling a:1: 1 of 2 layers, 2.0 of 2.0 MB"},
		{`{"status":"Extracting","id":"bb","progressDetail":{"current":1,"total":2000000}}`, "pulling a:1: 1 of 2 layers, 2.0 of 2.0 MB"},
		{`{"status":"Pull complete","id":"bb"}`, "pulling a:1: 2 of 2 layers, 2.0 of 2.0 MB"},
	} {
		var m jsonstream.Message
		if err := json.Unmarshal([]byte(c.line), &m); err != nil {
			t.Fatal(err)
		}
		if p.take(m); p.String() != c.want {
			t.Errorf("after %s: %q, want %q", c.line, p.String(), c.want)
		}
	}
}

func TestWhichErrorsMayPass(t *testing.T) {
	for text, want := range map[string]bool{
		"received unexpected HTTP status: 503 Service Unavailable":                true,
		"dial tcp 10.0.0.1:443: connect: connection refused":                      true,
		"manifest for a:9 not found: manifest unknown: manifest unknown":          false,
		"pull access denied for a, repository does not exist":                     false,
		"write /var/lib/docker/tmp/x: no space left on device":                    false,
		"no matching manifest for linux/amd64 in the manifest list entries":       false,
		"Get https://r/v2/: net/http: request canceled (Client.Timeout exceeded)": true,
	} {
		if got := mayPass(errors.New(text)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

// The reason of a task whose image cannot be pulled says what to do, however long the error of the registry is.
func TestReasonOfAFailedPullSaysWhatToDo(t *testing.T) {
	const network, name, private = "the node does not reach the registry", "check its name and tag", "muster has no credentials"
	for text, want := range map[string]string{
		`Get "https://r.invalid/v2/": dial tcp: lookup r.invalid on 10.0.0.1:53: no such host`:                                                  network,
		`Get "http://r:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused`:                                                               network,
		`Get "https://r/v2/": net/http: request canceled (Client.Timeout exceeded while awaiting headers)`:                                      network,
		"manifest for a:9 not found: manifest unknown: manifest unknown":                                                                        name,
		"pull access denied for a, repository does not exist or may require 'docker login': denied: requested access to the resource is denied": private,
		`Head "https://r/v2/a/manifests/1": unauthorized: authentication required`:                                                              private,
		"toomanyrequests: You have reached your pull rate limit":                                                                                "try later",
		"no matching manifest for linux/amd64 in the manifest list entries":                                                                     "not made for the node's processor",
		"write /var/lib/docker/tmp/x: no space left on device":                                                                                  "free space",
		`Get "https://r/v2/": x509: certificate signed by unknown authority`:                                                                    "does not trust the registry",
		`Get "https://r/v2/team/forbidden/manifests/1": dial tcp 10.0.0.1:443: i/o timeout`:                                                     network,
		"denied: \xff " + strings.Repeat("é", 2000) + " END":                                                                                    private,
		"denied: " + strings.Repeat("é", 2000):                                                                                                  private,
	} {
		got := notPulled("a:1", errors.New("Error response from daemon: "+text)).Error()
		if !strings.HasPrefix(got, "image a:1 cannot be pulled: "+text[:6]) || !strings.Contains(got, want) || len(got) > 700 || len(text) > 500 && len(got) < 400 || !utf8.ValidString(got) || strings.ContainsRune(got, '\n') {
			t.Errorf("%.80s:\n%s, want %s", text, got, want)
		}
	}
	if err := errors.New(`Get "https://r/v2/team/forbidden/manifests/1": dial tcp 10.0.0.1:443: i/o timeout`); !mayPass(err) {
		t.Error("a time-out counts as a refusal because of the image's name")
	}
	if got := notPulled("a:1", errors.New("strange")).Error(); got != "image a:1 cannot be pulled: strange" {
		t.Errorf(`got %v, want "image a:1 cannot be pulled: strange"`, got)
	}
}

func TestNotesNameTheContainersOfADeadRunner(t *testing.T) {
	n := &notes{path: filepath.Join(t.TempDir(), "boxes")}
	for _, line := range []note{{ID: "a", Host: "h"}, {ID: "b", Host: "h"}, {ID: "a", PID: 7, Ticks: 9, Boot: "x"}} {
		if err := n.add(line); err != nil {
			t.Fatal(err)
		}
	}
	n.removed("b")
	f, err := os.OpenFile(n.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"cut`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	all, err := readNotes(n.path)
	if want := (note{ID: "a", Host: "h", PID: 7, Ticks: 9, Boot: "x"}); err != nil || len(all) != 1 || all["a"] != want {
		t.Errorf("notes %+v, %v, want %+v", all, err, want)
	}
	n.removed("a")
	if info, err := os.Stat(n.path); err != nil || info.Size() != 0 {
		t.Errorf("with nothing left the file has %d bytes, %v, want no error and 0", info.Size(), err)
	}
}

// TestOrphansOfADeadRunnerEnd has a dead runner's notes name a process that still runs, one whose PID belongs to
// another process by now, and one of an earlier boot. There is no engine. Only the first process is ended.
func TestOrphansOfADeadRunnerEnd(t *testing.T) {
	orphan, other := exec.CommandContext(t.Context(), "sleep", "1000"), exec.CommandContext(t.Context(), "sleep", "1000")
	dir := t.TempDir()
	n := &notes{path: protocol.Dir(dir).Containers(1)}
	for id, cmd := range map[string]*exec.Cmd{"orphan": orphan, "other": other} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ticks := proc.StartTicks(cmd.Process.Pid)
		if id == "other" {
			ticks++
		}
		if err := n.add(note{ID: id, Host: "unix:///nowhere", PID: cmd.Process.Pid, Ticks: ticks, Boot: proc.BootID()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.add(note{ID: "old", Host: "unix:///nowhere", PID: os.Getpid(), Ticks: proc.StartTicks(os.Getpid()), Boot: "another"}); err != nil {
		t.Fatal(err)
	}
	died := make(chan error, 1)
	go func() { died <- orphan.Wait() }()
	if err := EndOrphans(t.Context(), dir, 1); err != nil {
		t.Fatal(err)
	}
	<-died
	if err := other.Process.Kill(); err != nil { // it still runs
		t.Error(err)
	}
	_ = other.Wait()
	unsure := &notes{path: protocol.Dir(dir).Containers(2)}
	if err := unsure.add(note{ID: "started?", Host: "unix:///nowhere"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := EndOrphans(ctx, dir, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("with a container that may run and no engine: %v, want it to wait until its context ends", err)
	}
}

func TestReasonOfARefusal(t *testing.T) {
	for text, want := range map[string]RefusalError{
		"OCI runtime exec failed: exec failed: unable to start container process: exec: \"x\": executable file not found in $PATH: unknown\r\n": {127, `cannot execute "x": executable file not found in $PATH`},
		"OCI runtime exec failed: exec failed: unable to start container process: exec: \"/etc\": permission denied: unknown":                   {126, `cannot execute "/etc": permission denied`},
	} {
		if got := refusal(codeNotExecutable, text); *got != want {
			t.Errorf("%q = %+v, want %+v", text, got, want)
		}
	}
}
