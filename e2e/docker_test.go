//go:build e2e

package e2e

// Tasks in containers, on a Docker engine that the test starts.

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/needtest"
)

// engine is a dockerd of a test, with its files. Its containerd is a separate process, as in distributions, and
// survives a dockerd that is killed.
type engine struct {
	t    *testing.T
	dir  string
	host string
	cmd  *exec.Cmd // dockerd
	base *exec.Cmd // containerd
}

const busyImage = "muster-test/busy:1"

// newEngine starts an engine with an image of a static busybox, or skips the test.
func newEngine(t *testing.T) *engine {
	t.Helper()
	needtest.Root(t, "starts a Docker engine")
	for _, program := range []string{"dockerd", "containerd", "docker"} { // Debian: docker.io
		needtest.Runs(t, program, "--version")
	}
	needtest.Runs(t, "busybox", "true")        // Debian: busybox-static
	dir, err := os.MkdirTemp("", "muster-dk-") //nolint:usetesting // short: its sockets' paths have 107 letters at most
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, dir: dir, host: "unix://" + filepath.Join(dir, "docker.sock")}
	t.Cleanup(func() {
		for _, cmd := range []*exec.Cmd{e.cmd, e.base} {
			if cmd != nil {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				_ = cmd.Wait()
			}
		}
		_ = exec.Command("pkill", "-KILL", "-f", dir).Run()
		for _, m := range mountsBelow(dir) {
			_ = syscall.Unmount(m, syscall.MNT_DETACH)
		}
		_ = os.RemoveAll(dir)
	})
	settings := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(e.path("containerd.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	e.base = exec.Command("containerd", "--config", e.path("containerd.toml"), "--root", e.path("croot"), "--state", e.path("cstate"), "--address", e.path("c.sock"))
	if !e.run(e.base, "containerd successfully booted") || !e.start() {
		t.Skipf("no Docker engine can be started here:\n%s", e.log())
	}
	load := exec.Command("docker", "-H", e.host, "import", "-", busyImage)
	load.Stdin = bytes.NewReader(busyRoot(t))
	if out, err := load.CombinedOutput(); err != nil {
		t.Skipf("docker import: %v\n%s", err, out)
	}
	// An engine that answers may still lack what is needed to start a container, and a busybox with shared libraries
	// cannot run in one.
	if out, err := exec.Command("docker", "-H", e.host, "run", "--rm", "--network", "none", busyImage, "true").CombinedOutput(); err != nil {
		t.Skipf("docker run: %v\n%s", err, out)
	}
	return e
}

func (e *engine) path(name string) string { return filepath.Join(e.dir, name) }

// start starts dockerd and waits until it listens; false if it fails to start.
func (e *engine) start(args ...string) bool {
	e.t.Helper()
	_ = os.Remove(e.path("pid"))
	e.cmd = exec.Command("dockerd", append([]string{
		"--containerd", e.path("c.sock"),
		"--data-root", e.path("data"), "--exec-root", e.path("exec"), "--pidfile", e.path("pid"), "--host", e.host,
		"--iptables=false", "--ip6tables=false", "--bridge=none",
	}, args...)...)
	return e.run(e.cmd, "API listen on")
}

// run starts a program and waits until its log says that it is ready; false if it does not.
func (e *engine) run(cmd *exec.Cmd, ready string) bool {
	e.t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StderrPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	up := make(chan bool, 2)
	go func() {
		log, _ := os.OpenFile(e.path("log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		defer log.Close()
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			fmt.Fprintln(log, lines.Text())
			if strings.Contains(lines.Text(), ready) {
				up <- true
			}
		}
		up <- false
	}()
	// There is no limit: an engine that starts removes the network namespaces of its old containers, which takes the
	// kernel seconds for each while other tests make and remove theirs. An engine that fails ends.
	return <-up
}

// kill kills dockerd alone with SIGKILL, like a crash.
func (e *engine) kill() {
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
}

func (e *engine) log() string {
	b, _ := os.ReadFile(e.path("log"))
	return string(b[max(0, len(b)-4096):])
}

// docker runs the docker command line with this engine.
func (e *engine) docker(args ...string) string {
	e.t.Helper()
	out, err := exec.Command("docker", append([]string{"-H", e.host}, args...)...).CombinedOutput()
	if err != nil {
		e.t.Fatalf("docker %q: got %v, want no error\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// untilGone waits until the engine has no container of a job.
func (e *engine) untilGone(id string) {
	e.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if e.docker("ps", "-aq", "--filter", "label=muster.job="+id) == "" {
			return
		}
	}
	e.t.Fatalf("containers of job %s were not removed", id)
}

func mountsBelow(dir string) []string {
	b, _ := os.ReadFile("/proc/self/mounts")
	var all []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir) {
			all = append([]string{f[1]}, all...)
		}
	}
	return all
}

// busyRoot returns the root file system of an image as a tar file.
func busyRoot(t *testing.T) []byte {
	t.Helper()
	program, err := os.ReadFile(needtest.Runs(t, "busybox", "true"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, body []byte) {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range []string{"sh", "sleep", "cat", "echo", "id", "true", "head", "yes", "sort", "env", "touch"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestContainersRunAsTasks tests the life of containers on one engine. It does not run beside other tests, because
// their network namespaces delay the engine's.
func TestContainersRunAsTasks(t *testing.T) {
	e := newEngine(t)
	share := e.path("share")
	if err := os.Mkdir(share, 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4", "--docker-host", e.host, "--docker-mount", share).start()
	at := dockerTest{e: e, d: d, share: share}
	for _, step := range []struct {
		name string
		run  func(*testing.T, dockerTest)
	}{
		{"environment", dockerEnvironment},
		{"confinement", dockerConfinement},
		// This comes before there are many containers: an engine that restarts takes most of a second for each that it
		// has ever run.
		{"engine restarted", dockerEngineRestarted},
		{"engine stopped", dockerEngineStopped},
		{"engine away", dockerEngineAway},
		{"ends", dockerEnds},
		{"mounts", dockerMounts},
		{"files", dockerFiles},
		{"output files", dockerOutputFiles},
		{"exec", dockerExec},
		{"input", dockerInput},
		{"pull", dockerPull},
		{"daemon killed", dockerDaemonKilled},
		{"runner killed", dockerRunnerKilled},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			e.t, d.t = t, t
			step.run(t, at)
		})
		e.t, d.t = t, t
		if !ok {
			t.Logf("end of the engine's log:\n%s", e.log())
			break
		}
	}
}

// dockerTest is the state that the steps share.
type dockerTest struct {
	e     *engine
	d     *daemon
	share string
}

// in returns a command line that runs a script in the image.
func (x dockerTest) in(verb, script string, flags ...string) []string {
	return append(append([]string{verb, "--image", busyImage}, flags...), "--", "sh", "-c", script)
}

// gate returns a named pipe that containers see as /share/NAME.
func (x dockerTest) gate(t *testing.T, name string) gate {
	t.Helper()
	g := gate{t, filepath.Join(x.share, name)}
	if err := syscall.Mkfifo(g.path, 0o666); err != nil {
		t.Fatal(err)
	}
	return g
}

func dockerEnvironment(t *testing.T, x dockerTest) {
	r := x.d.muster(x.in("run", `echo out; echo err >&2; echo "$MUSTER_JOB_NAME/$GREETING/$MUSTER_PARAM_LR/$CUDA_VISIBLE_DEVICES-"; cat $MUSTER_HOSTFILE; touch $MUSTER_SCRATCH/mine && [ "$PWD" = "$MUSTER_SCRATCH" ] && [ "$HOME" = "$PWD" ] && [ -z "$LANG" ] && exit 3`,
		"-J", "hello", "--env", "GREETING=hi", "--param", "LR=0.1")...)
	if want := "out\nhello/hi/0.1/-\n127.0.0.1 slots=1\n"; r.stdout != want || r.code != 3 || !strings.HasPrefix(r.stderr, "err\n") {
		t.Errorf("exit %d, output %q, want 3 and %q; stderr %q", r.code, r.stdout, want, r.stderr)
	}
	if r := x.d.muster(x.in("run", "echo $HOME", "--env", "HOME=/tmp")...); r.stdout != "/tmp\n" || r.code != 0 {
		t.Errorf("HOME of --env: got %+v, want /tmp", r)
	}
	id := x.d.ok("submit", "--image", busyImage, "--", "sh", "-c", "echo $0; exit 5", "an argument")
	doc := x.d.untilState(id, "FAILED")
	if doc.ExitCode == nil || *doc.ExitCode != 5 || x.d.ok("logs", id) != "an argument" {
		t.Errorf("got %+v, %q, want exit code 5 and the argument", doc, x.d.ok("logs", id))
	}
	if out := x.d.ok("show", id); !strings.Contains(out, "confined by container") {
		t.Errorf("show: want confined by container, got %s", out)
	}
	x.e.untilGone(id)
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n#MUSTER --image="+busyImage+"\necho from a script\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := x.d.muster("run", file); r.stdout != "from a script\n" || r.code != 0 {
		t.Errorf("script: got %+v, want its output", r)
	}
}

// dockerOutputFiles has containers whose output also goes to files of the node.
func dockerOutputFiles(t *testing.T, x dockerTest) {
	dir := t.TempDir()
	r := x.d.in(dir, x.in("run", "echo out; echo err >&2; exit 3", "-o", filepath.Join(dir, "%x.out"), "-e", filepath.Join(dir, "%x.err"), "-J", "two")...)
	if r.code != 3 || r.stdout != "out\n" || !strings.HasPrefix(r.stderr, "err\n") {
		t.Errorf("got %+v, want exit code 3 with both outputs", r)
	}
	script := filepath.Join(dir, "script")
	write(t, script, "#!/bin/sh\n#SBATCH -J three -o %x.out\n#MUSTER --image="+busyImage+"\nyes 0123456789 | head -n 200000; echo end >&2\n")
	if r := x.d.in(dir, "run", script); r.code != 0 {
		t.Errorf("got %+v, want exit code 0", r)
	}
	for name, want := range map[string]string{
		"two.out": "out\n", "two.err": "err\n", "three.out": strings.Repeat("0123456789\n", 200_000) + "end\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		got := string(text)
		if name == "three.out" { // the engine reads two pipes, so the last line of one may come before those of the other
			before, after, _ := strings.Cut(got, "end\n")
			got = before + after + "end\n"
		}
		if err != nil || got != want {
			t.Errorf("%s: got %d bytes that begin with %.20q, %v, want the output", name, len(text), text, err)
		}
	}
	r = x.d.muster(x.in("run", "true", "-o", "relative")...)
	if r.code != 2 || !strings.Contains(r.stderr, `output: "relative": want an absolute path of the node`) {
		t.Errorf("got %+v, want exit code 2 and the path", r)
	}
	r = x.d.muster(x.in("run", "true", "-o", filepath.Join(dir, "nowhere/x"))...)
	if r.code != 126 || !strings.Contains(r.stderr, "nowhere/x: no such file") {
		t.Errorf("got %+v, want exit code 126 and the path", r)
	}
	pipe := filepath.Join(dir, "hangs") // nobody reads this pipe
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	id := x.d.ok(x.in("submit", "yes | head -c 1000000; echo end", "-o", pipe)...)
	if doc := x.d.untilState(id, "SUCCEEDED"); doc.ExitCode == nil || *doc.ExitCode != 0 {
		t.Errorf("got %+v, want exit code 0", doc)
	}
}

// dockerFiles copies files to a container and back, while it runs and after its end.
func dockerFiles(t *testing.T, x dockerTest) {
	from, here := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "src/in"), "brought\n")
	g := x.gate(t, "files")
	r := x.d.in(from, x.in("submit", `[ "$PWD" = "$MUSTER_SCRATCH" ] && echo more >> src/in && mkdir -p ckpt/deep && echo one > ckpt/a && cp src/in ckpt/deep/b && ln -s /etc/passwd ckpt/evil && echo ready && read line < /share/files; exit 3`,
		"--upload", ".", "--download", "ckpt/*", "--download", "nothing", "--mount", x.share+":/share")...)
	id := strings.TrimSpace(r.stdout)
	if r.code != 0 {
		t.Fatalf("got %+v, want exit code 0", r)
	}
	x.d.untilState(id, "RUNNING")
	x.d.until(id, "at the gate", func(api.Job) bool { return strings.Contains(x.d.muster("logs", id).stdout, "ready") })
	check := func(name, want string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(here, name)); err != nil || string(text) != want {
			t.Errorf("%s: got %q, %v, want %q", name, text, err, want)
		}
	}
	x.d.ok("cp", id+":src/in", here)
	check("in", "brought\nmore\n")
	g.open()
	if doc := x.d.untilState(id, "FAILED"); doc.ExitCode == nil || *doc.ExitCode != 3 {
		t.Errorf("got %+v, want exit code 3", doc)
	}
	x.d.ok("cp", id+":ckpt/*", here)
	check("a", "one\n")
	check("deep/b", "brought\nmore\n")
	if _, err := os.Lstat(filepath.Join(here, "evil")); err == nil {
		t.Error("a link that leads out of the task's directory was downloaded")
	}
	if left, err := filepath.Glob(filepath.Join(x.d.dir, "data/run/tasks", id+"*", "scratch")); err != nil || len(left) != 0 {
		t.Errorf("its scratch directory was not removed: got %v, %v, want 0", left, err)
	}
	r = x.d.in(here, x.in("run", "mkdir out; echo done > out/x", "--download", "out")...)
	if check("out/x", "done\n"); r.code != 0 {
		t.Errorf("got %+v, want exit code 0", r)
	}
	x.d.fails(2, []string{"download", "workdir"}, x.in("submit", "true", "--download", "out", "-D", "/tmp")...)
}

// dockerExec runs commands in a container.
func dockerExec(t *testing.T, x dockerTest) {
	g := x.gate(t, "exec")
	id := x.d.ok(x.in("submit", "read line < /share/exec", "--env", "COLOUR=blue", "--mount", x.share+":/share")...)
	x.d.untilState(id, "RUNNING")
	// A command sees the file system and the processes of the container.
	if r := x.d.muster("exec", id, "--", "sh", "-c", `echo $COLOUR; pwd; ls /share; [ -d /proc/1 ] && echo wrong >&2; exit 7`); r.code != 7 || r.stderr != "wrong\n" ||
		!strings.HasPrefix(r.stdout, "blue\n/") || !strings.Contains(r.stdout, "/scratch\n") || !strings.Contains(r.stdout, "exec\n") {
		t.Errorf("got %+v, want exit code 7 with the variables and files of the container", r)
	}
	if r := x.d.musterIn(strings.NewReader("from here\n"), "exec", "-i", id, "--", "cat"); r.code != 0 || r.stdout != "from here\n" {
		t.Errorf("with input: got %+v, want the input", r)
	}
	if r := x.d.muster("exec", id, "--", "cat"); r.code != 0 || r.stdout != "" {
		t.Errorf("without input: got %+v, want no output", r)
	}
	x.d.fails(127, []string{"no-such-program-xyz"}, "exec", id, "--", "no-such-program-xyz")
	if big := x.d.muster("exec", id, "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"); len(big.stdout) != 3_000_000 {
		t.Errorf("got %d bytes, want 3,000,000", len(big.stdout))
	}
	dockerTerminal(t, x, id)
	// A command ends when its client ends. The remaining commands end with the container.
	for _, gone := range []string{"client", "task"} {
		mark := "9" + strings.Repeat("0", len(gone)) // a number of seconds for sleep that also identifies the process
		client := exec.Command(binary(t), "exec", id, "--", "sh", "-c", "sleep "+mark+"; true")
		client.Env = append(os.Environ(), "MUSTER_SOCKET="+x.d.socket)
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		running := func() bool {
			return strings.Contains(x.e.docker("top", "muster-"+id+".0.1", "-o", "pid,args"), "sleep "+mark)
		}
		eventually(t, "the command runs", running)
		if gone == "client" {
			_ = client.Process.Kill()
			eventually(t, "the command ends with the client", func() bool { return !running() })
		} else {
			g.open()
			x.d.untilState(id, "SUCCEEDED")
		}
		_ = client.Wait()
	}
	x.e.untilGone(id)
	x.d.fails(125, []string{"SUCCEEDED", "not running"}, "exec", id, "--", "true")
}

// dockerTerminal opens a terminal in a container and changes its size.
func dockerTerminal(t *testing.T, x dockerTest, id string) {
	cmd := exec.Command(binary(t), "exec", "-it", id, "--", "sh", "-c",
		`tty; echo kind=$TERM; until stty size | grep -q '31 97'; do sleep 0.05; done; echo fir''st; until stty size | grep -q '40 120'; do sleep 0.05; done; echo sec''ond; sleep 1000`)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+x.d.socket, "TERM=vt100")
	near, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 31, Cols: 97})
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var seen []string
	for in := bufio.NewScanner(near); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		seen = append(seen, line)
		switch line {
		case "first":
			if err := pty.Setsize(near, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Process.Signal(syscall.SIGWINCH)
		case "second":
			_, _ = near.WriteString("\x03")
		}
	}
	_ = cmd.Wait()
	if text := strings.Join(seen, " "); cmd.ProcessState.ExitCode() != 130 || !containsAll(text, []string{"/dev/pts/", "kind=vt100", "first", "second"}) {
		t.Errorf("exit %d, %q, want 130 with the terminal and both sizes", cmd.ProcessState.ExitCode(), text)
	}
}

// dockerConfinement checks the limits of a container, as the engine describes them and from inside.
func dockerConfinement(t *testing.T, x dockerTest) {
	g := x.gate(t, "confined")
	id := x.d.ok(x.in("submit", "cat /proc/self/status; read line < /share/confined", "-c", "2", "--mem", "64MiB", "--mount", x.share+":/share")...)
	x.d.untilState(id, "RUNNING")
	var all []struct {
		Name       string
		Config     struct{ User string }
		HostConfig struct {
			NanoCpus, Memory, MemorySwap, PidsLimit, ShmSize int64
			Privileged                                       bool
			CapAdd, CapDrop, SecurityOpt                     []string
			NetworkMode, PidMode, IpcMode                    string
		}
	}
	text := x.e.docker("inspect", "muster-"+id+".0.1")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 {
		t.Fatalf("inspect: got %v, want one container\n%s", err, text)
	}
	h := all[0].HostConfig
	if h.NanoCpus != 2e9 || h.Memory != 64<<20 || h.MemorySwap != h.Memory || h.PidsLimit <= 0 || h.ShmSize != 32<<20 {
		t.Errorf("limits: got %+v, want those of the job", h)
	}
	if h.Privileged || len(h.CapAdd) > 0 || strings.Join(h.CapDrop, "") != "ALL" || strings.Join(h.SecurityOpt, "") != "no-new-privileges" ||
		h.NetworkMode == "host" || h.PidMode != "" || h.IpcMode != "private" {
		t.Errorf("confinement: got %+v, want no privileges", h)
	}
	g.open()
	x.d.untilState(id, "SUCCEEDED")
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if out := x.d.ok("logs", id); !strings.Contains(out, want) {
			t.Errorf("inside: want %q, got\n%s", want, out)
		}
	}
}

func dockerEnds(t *testing.T, x dockerTest) {
	hog := x.d.ok(x.in("submit", "yes | head -c 200000000 | sort > /dev/null", "--mem", "32MiB")...)
	child := x.d.ok(x.in("submit", "yes | head -c 200000000 | sort > /dev/null; echo written; exit 0", "--mem", "32MiB")...)
	limit := x.d.ok(x.in("submit", `trap "" TERM; echo deaf; sleep 1000 & wait; sleep 1000`, "--time", "1s", "--grace", "500ms")...)
	polite := x.d.ok(x.in("submit", `trap "echo bye; exit 7" TERM; echo ready; while true; do sleep 0.05; done`)...)
	saves := x.d.ok(x.in("submit", `sh -c 'trap "sleep 0.5; echo saved; exit 0" TERM; echo up; while :; do sleep 0.05; done'; echo never`, "--grace", "1m")...)
	killed := x.d.ok(x.in("submit", "kill -9 $$")...)
	x.d.until(saves, "up", func(j api.Job) bool { return j.State == "RUNNING" && x.d.ok("logs", saves) == "up" })
	x.d.ok("cancel", saves)
	if doc := x.d.untilState(saves, "CANCELLED"); *doc.ExitCode != 143 || x.d.ok("logs", "--stdout", saves) != "up\nsaved" {
		t.Errorf("a program whose shell died of TERM: got %+v, %q, want 143 with its last output", doc, x.d.ok("logs", "--stdout", saves))
	}
	x.d.until(polite, "ready", func(j api.Job) bool { return j.State == "RUNNING" && x.d.ok("logs", polite) == "ready" })
	x.d.ok("cancel", polite)
	if doc := x.d.untilState(polite, "CANCELLED"); x.d.ok("logs", "--stdout", polite) != "ready\nbye" {
		t.Errorf("cancelled: got %+v, %q, want its last output", doc, x.d.ok("logs", polite))
	}
	if doc := x.d.untilState(child, "OUT_OF_MEMORY"); *doc.ExitCode != 137 {
		t.Errorf("a child that was killed, with a main process that ignores that: got %+v, want 137", doc)
	}
	if doc := x.d.untilState(hog, "OUT_OF_MEMORY"); !strings.Contains(x.d.ok("show", hog), "lack of memory: it had asked for 32MiB; give it more with --mem") {
		t.Errorf("out of memory: got %+v, want the size and the option", doc)
	}
	doc := x.d.untilState(limit, "TIMEOUT")
	if took := doc.Tasks[0].EndedAt.Sub(*doc.Tasks[0].StartedAt); took < 1500*time.Millisecond || took > 2500*time.Millisecond {
		t.Errorf("with a limit of 1s and a grace of 500ms it ran for %s, want 1.5 to 2.5 s", took)
	}
	if r := x.d.muster("wait", killed); r.code != 128+9 || x.d.show(killed).State != "FAILED" {
		t.Errorf("killed: exit %d, %+v, want 137, FAILED", r.code, x.d.show(killed))
	}
	for _, id := range []string{hog, limit, polite, saves, killed} {
		x.e.untilGone(id)
	}
}

func dockerMounts(t *testing.T, x dockerTest) {
	if err := os.WriteFile(filepath.Join(x.share, "data"), []byte("shared\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(x.share, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	r := x.d.muster(x.in("run", "cat /in/data; touch /in/more", "--mount", x.share+":/in:ro")...)
	if r.stdout != "shared\n" || r.code == 0 || !strings.Contains(r.stderr, "Read-only") {
		t.Errorf("read-only mount: got %+v, want a failed write", r)
	}
	x.d.fails(3, []string{"mount: /etc", "lets containers see " + x.share, "its setting docker-mount, as in muster daemon --docker-mount /etc, or submit it with --hold"}, x.in("submit", "true", "--mount", "/etc:/in")...)
	x.d.fails(2, []string{"mount", "or has . or .. in it"}, x.in("submit", "true", "--mount", x.share+"/../etc:/in")...)
	id := x.d.ok(x.in("submit", "true", "--mount", x.share+"/elsewhere:/in")...)
	if x.d.untilState(id, "FAILED"); !strings.Contains(x.d.ok("show", id), "not allowed") {
		t.Errorf("a link out of the directory: got %s, want that it is not allowed", x.d.ok("show", id))
	}
}

// registry serves one image with one layer. It sends the second half of the layer after gate is closed. It refuses the
// first requests for the manifest.
type registry struct {
	manifest, config, layer []byte
	refuse                  atomic.Int32
	asked                   atomic.Int32
	gate                    chan struct{}
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	root := busyRoot(t)
	if _, err := z.Write(root); err != nil {
		t.Fatal(err)
	}
	z.Close()
	r := &registry{layer: packed.Bytes(), gate: make(chan struct{})}
	r.config = fmt.Appendf(nil, `{"architecture":"amd64","os":"linux","config":{"WorkingDir":"/tmp","Cmd":["sh","-c","echo the image; pwd"]},"rootfs":{"type":"layers","diff_ids":[%q]}}`, digest(root))
	r.manifest = fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json",`+
		`"config":{"mediaType":"application/vnd.docker.container.image.v1+json","size":%d,"digest":%q},`+
		`"layers":[{"mediaType":"application/vnd.docker.image.rootfs.diff.tar.gzip","size":%d,"digest":%q}]}`,
		len(r.config), digest(r.config), len(r.layer), digest(r.layer))
	return r
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch path := q.URL.Path; {
	case path == "/v2/":
	case strings.HasPrefix(path, "/v2/there/manifests/"):
		if r.asked.Add(1) <= r.refuse.Load() {
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
		w.Header().Set("Docker-Content-Digest", digest(r.manifest))
		_, _ = w.Write(r.manifest)
	case path == "/v2/there/blobs/"+digest(r.config):
		_, _ = w.Write(r.config)
	case path == "/v2/there/blobs/"+digest(r.layer):
		w.Header().Set("Content-Length", fmt.Sprint(len(r.layer)))
		_, _ = w.Write(r.layer[:len(r.layer)/2])
		w.(http.Flusher).Flush()
		select {
		case <-r.gate:
			_, _ = w.Write(r.layer[len(r.layer)/2:])
		case <-q.Context().Done():
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
	}
}

func dockerPull(t *testing.T, x dockerTest) {
	reg := newRegistry(t)
	reg.refuse.Store(2)
	server := httptest.NewServer(reg)
	defer server.Close()
	open := sync.OnceFunc(func() { close(reg.gate) })
	defer open()
	at := strings.TrimPrefix(server.URL, "http://")
	id := x.d.ok("submit", "--image", at+"/there:1", "--time", "2s")
	x.d.until(id, "STARTING with its layers", func(j api.Job) bool {
		return j.State == "STARTING" && strings.Contains(x.d.ok("show", id), "pulling "+at+"/there:1: 0 of 1 layers")
	})
	pulling := time.Now()
	if n := reg.asked.Load(); n <= 2 {
		t.Errorf("the layers are pulled after %d requests for the manifest, want more than 2", n)
	}
	gone := x.d.ok("submit", "--image", at+"/absent:1", "--", "true")
	doc := x.d.untilState(gone, "FAILED")
	if text := x.d.ok("show", gone); doc.Tasks[0].Attempt != 1 || !strings.Contains(text, "absent:1 cannot be pulled: manifest") || !strings.Contains(text, "check its name and tag") {
		t.Errorf("absent image: got %s, want one attempt and the reason", text)
	}
	stopped := x.d.ok("submit", "--image", at+"/there:1", "--", "true")
	x.d.until(stopped, "STARTING", func(j api.Job) bool { return j.State == "STARTING" })
	x.d.ok("cancel", stopped)
	x.d.untilState(stopped, "CANCELLED")
	// the pull takes longer than the time limit of the task
	time.Sleep(time.Until(pulling.Add(2100 * time.Millisecond)))
	open()
	x.d.untilState(id, "SUCCEEDED")
	if out := x.d.ok("logs", id); out != "the image\n/tmp" {
		t.Errorf("the image's own command in its own directory: got %q, want both", out)
	}
}

func dockerDaemonKilled(t *testing.T, x dockerTest) {
	g := x.gate(t, "adopted")
	id := x.d.ok(x.in("submit", "echo before; read line < /share/adopted; echo after; exit 9", "--mount", x.share+":/share")...)
	before := x.d.untilState(id, "RUNNING")
	x.d.kill()
	if !alive(before.Tasks[0].PID) {
		t.Fatal("the container ended with the daemon")
	}
	x.d.start()
	after := x.d.untilState(id, "RUNNING")
	if after.Tasks[0].PID != before.Tasks[0].PID || after.Tasks[0].Attempt != 1 {
		t.Errorf("before %+v, after %+v, want the same process", before.Tasks[0], after.Tasks[0])
	}
	g.open()
	doc := x.d.untilState(id, "FAILED")
	if *doc.ExitCode != 9 || x.d.ok("logs", id) != "before\nafter" {
		t.Errorf("exit code %d, output %q, want 9 and both lines", *doc.ExitCode, x.d.ok("logs", id))
	}
	late := x.d.ok(x.in("submit", "sleep 0.2; exit 4")...) // ends while no daemon runs
	x.d.untilState(late, "RUNNING")
	x.d.kill()
	x.e.untilGone(late)
	x.d.start()
	if doc := x.d.untilState(late, "FAILED"); *doc.ExitCode != 4 {
		t.Errorf("ended without a daemon: got %+v, want 4", doc)
	}
}

// dockerRunnerKilled kills the runner, and then runner and daemon together. The guard ends the container, and its task
// is reported as lost.
func dockerRunnerKilled(t *testing.T, x dockerTest) {
	for _, both := range []bool{false, true} {
		id := x.d.ok(x.in("submit", `trap "" TERM; sleep 1000 & wait; sleep 1000`, "--no-requeue")...)
		pid := x.d.untilState(id, "RUNNING").Tasks[0].PID
		if both {
			x.d.kill()
		}
		killRunnerOnly(t, x.d)
		for end := time.Now().Add(patience); alive(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the container is still running after its runner was killed (daemon killed, too: %t)", both)
			}
		}
		if both {
			x.d.start()
		}
		x.d.untilState(id, "NODE_FAIL")
	}
}

// killRunnerOnly kills the runner but not the guard.
func killRunnerOnly(t *testing.T, d *daemon) {
	t.Helper()
	locks, _ := filepath.Glob(filepath.Join(d.dir, "data", "run", "runner-*.lock"))
	for _, lock := range locks {
		var info struct {
			PID int `json:"pid"`
		}
		b, err := os.ReadFile(lock)
		if err == nil {
			err = json.Unmarshal(b, &info)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// dockerEngineRestarted crashes the engine, which ends its containers when it comes back. One of them had ended by
// itself.
func dockerEngineRestarted(t *testing.T, x dockerTest) {
	long := x.d.ok(x.in("submit", "sleep 1000", "--no-requeue")...)
	g := x.gate(t, "restarted")
	short := x.d.ok(x.in("submit", "read line < /share/restarted; exit 6", "--mount", x.share+":/share")...)
	x.d.untilState(long, "RUNNING")
	pid := x.d.untilState(short, "RUNNING").Tasks[0].PID
	x.e.kill()
	x.untilOffers(t, "no Docker engine")
	x.d.fails(3, []string{"no Docker engine"}, x.in("submit", "true")...)
	g.open()
	untilGone(t, pid)
	if !x.e.start() {
		t.Fatalf("the engine does not start again:\n%s", x.e.log())
	}
	if doc := x.d.untilState(long, "NODE_FAIL"); !strings.Contains(x.d.ok("show", long), "engine was restarted") {
		t.Errorf("got %+v, want that the engine was restarted", doc)
	}
	if doc := x.d.until(short, "ended", func(j api.Job) bool { return j.ExitCode != nil || j.State == "NODE_FAIL" }); doc.State != "FAILED" || *doc.ExitCode != 6 {
		t.Errorf("ended by itself: got %+v, want FAILED with 6", doc)
	}
	x.untilOffers(t, "this host")
	x.e.untilGone(long)
	x.e.untilGone(short)
}

// dockerEngineStopped stops the engine, which ends its containers. That does not count as a failure of the tasks,
// whatever they do on SIGTERM.
func dockerEngineStopped(t *testing.T, x dockerTest) {
	ignores := x.d.ok(x.in("submit", "sleep 1000", "--no-requeue")...)
	exits := x.d.ok(x.in("submit", "trap 'exit 3' TERM; while :; do sleep 0.05; done", "--no-requeue")...)
	x.d.untilState(ignores, "RUNNING")
	x.d.untilState(exits, "RUNNING")
	if err := syscall.Kill(x.e.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = x.e.cmd.Wait() // its exit code does not matter
	if !x.e.start() {
		t.Fatalf("the engine does not start again:\n%s", x.e.log())
	}
	for _, id := range []string{ignores, exits} {
		if doc := x.d.untilState(id, "NODE_FAIL"); !strings.Contains(doc.Tasks[0].Reason, "engine was stopped") {
			t.Errorf("got %+v, want that the engine was stopped", doc.Tasks[0])
		}
	}
	x.e.untilGone(ignores)
	x.e.untilGone(exits)
}

// untilOffers waits until a dry run prints a word.
func (x dockerTest) untilOffers(t *testing.T, word string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r := x.d.muster(x.in("offers", "true")...); strings.Contains(r.stdout, word) {
			return
		}
	}
	t.Fatalf("muster offers never printed %q", word)
}

// dockerEngineAway lets containers go on without their engine. One of them reaches its time limit in that time. The
// other is watched again when the engine is back.
func dockerEngineAway(t *testing.T, x dockerTest) {
	x.e.kill()
	x.untilOffers(t, "no Docker engine") // otherwise the output for the former state would match
	if !x.e.start("--live-restore") {
		t.Fatalf("the engine does not start:\n%s", x.e.log())
	}
	x.untilOffers(t, "this host")
	on := x.d.ok(x.in("submit", "while ! [ -e /share/seen ]; do echo after; sleep 0.1; done; exit 8", "--mount", x.share+":/share")...)
	limit := x.d.ok(x.in("submit", "sleep 1000", "--time", "2s")...)
	x.d.untilState(on, "RUNNING")
	pid := x.d.untilState(limit, "RUNNING").Tasks[0].PID
	x.e.kill()
	for end := time.Now().Add(patience); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("without its engine, a container ran longer than its time limit")
		}
	}
	if !x.e.start("--live-restore") {
		t.Fatalf("the engine does not start again:\n%s", x.e.log())
	}
	x.d.untilState(limit, "TIMEOUT")
	told := func() string { // what it wrote after the line that says that some output may be missing
		_, after, _ := strings.Cut(x.d.ok("logs", on), "output may be missing here")
		return after
	}
	for end := time.Now().Add(patience); !strings.Contains(told(), "after"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the output of a container was not read again after its engine had been away")
		}
	}
	write(t, filepath.Join(x.share, "seen"), "")
	if doc := x.d.untilState(on, "FAILED"); *doc.ExitCode != 8 {
		t.Errorf("exit code %d, want 8", *doc.ExitCode)
	}
	x.untilOffers(t, "this host") // the runner finds the engine again before the daemon does
}
