// Package needtest skips a test on a machine that lacks what the test needs: rights, programs, headers, features of the
// kernel. Each need is probed by itself and by using it as the tests do, because a program that is installed may lack its
// headers, its libraries or its server, and a right may be missing that its owner usually has. Each probe runs once in a
// process and takes at most a minute.
package needtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/chromium"
)

// probeWait bounds a probe. It is long, for a machine that is busy with other tests.
const probeWait = time.Minute

// Root skips the test unless it runs as root, and says what for.
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: " + why)
	}
}

// Runs skips the test unless a program ends without an error when it is run with these arguments. It returns the path of
// the program.
func Runs(t testing.TB, program string, args ...string) string {
	t.Helper()
	skip(t, strings.Join(append([]string{program}, args...), " "), func() error { return runs(program, args...) })
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err) // it just ran
	}
	return path
}

// Headers skips the test unless a compiler compiles and links a program of C that includes these headers.
func Headers(t testing.TB, compiler string, headers ...string) {
	t.Helper()
	skip(t, fmt.Sprintf("%s with %q", compiler, headers), func() error {
		return within(func(dir string) error { _, err := compile(dir, compiler, emptyMain, headers...); return err })
	})
}

// MPI skips the test unless Open MPI compiles a program and starts it.
func MPI(t testing.TB) {
	t.Helper()
	skip(t, "Open MPI (Debian: openmpi-bin and libopenmpi-dev)", mpi)
}

// Tmux skips the test unless tmux runs a program on a terminal.
func Tmux(t testing.TB) {
	t.Helper()
	skip(t, "tmux", tmux)
}

// Browser skips the test unless Chromium shows a page. It returns the path of the program.
func Browser(t testing.TB) string {
	t.Helper()
	skip(t, "Chromium (install chromium, or name one in MUSTER_CHROMIUM)", browser)
	path, err := chromium.Program()
	if err != nil {
		t.Fatal(err) // it just ran
	}
	return path
}

// Hosts skips the test unless this machine can be several hosts: network namespaces with names, a bridge between them,
// and a host name in each.
func Hosts(t testing.TB) {
	t.Helper()
	Root(t, "makes network namespaces")
	skip(t, "several hosts on one machine (the programs ip, nsenter, unshare and hostname)", hosts)
}

// results are the probes that have run, by what they probe: functions that return the error.
var results sync.Map

// skip skips the test if a probe fails. What says for people what is probed, and tells probes apart.
func skip(t testing.TB, what string, probe func() error) {
	t.Helper()
	once, _ := results.LoadOrStore(what, sync.OnceValue(probe))
	if err := once.(func() error)(); err != nil {
		t.Skipf("needs %s: %v", what, err)
	}
}

// runs runs a program to its end.
func runs(program string, args ...string) error {
	_, err := said(program, args...)
	return err
}

// said runs a program and returns what it prints to standard output. The error has all that it printed.
func said(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeWait)
	defer cancel()
	var out, both strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = split{&out, &both}, &both
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	cmd.WaitDelay = time.Second // for children that keep its output
	if err := cmd.Run(); err != nil {
		return "", errors.Join(fmt.Errorf("%s: %w", program, err), ctx.Err(), errors.New(strings.TrimSpace(both.String())))
	}
	return out.String(), nil
}

// split writes to two buffers.
type split struct{ a, b *strings.Builder }

func (s split) Write(p []byte) (int, error) {
	s.b.Write(p)
	return s.a.Write(p)
}

// within gives a probe a directory for as long as it takes.
func within(probe func(dir string) error) error {
	dir, err := os.MkdirTemp("", "need") // a short name: the path of a socket has 107 letters at most
	if err != nil {
		return err
	}
	return errors.Join(probe(dir), os.RemoveAll(dir))
}

const emptyMain = "int main(void) { return 0; }\n"

// compile makes a program of C and returns its path.
func compile(dir, compiler, text string, headers ...string) (string, error) {
	var source strings.Builder
	for _, h := range headers {
		fmt.Fprintf(&source, "#include <%s>\n", h)
	}
	source.WriteString(text)
	file, program := filepath.Join(dir, "probe.c"), filepath.Join(dir, "probe")
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		return "", err
	}
	return program, runs(compiler, "-o", program, file)
}

func mpi() error {
	return within(func(dir string) error {
		program, err := compile(dir, "mpicc", "int main(int n, char **args) { MPI_Init(&n, &args); return MPI_Finalize(); }\n", "mpi.h")
		if err != nil {
			return err
		}
		as := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		return runs("env", append(as, "mpirun", "-n", "1", "--mca", "plm_rsh_no_tree_spawn", "1", program)...)
	})
}

func tmux() error {
	return within(func(dir string) error {
		at := []string{"-u", "-f", "/dev/null", "-S", filepath.Join(dir, "s")}
		if err := runs("tmux", append(at, "new-session", "-d", "-x", "80", "-y", "24", "sleep", "60")...); err != nil {
			return err
		}
		return errors.Join(runs("tmux", append(at, "capture-pane", "-p")...), runs("tmux", append(at, "kill-server")...))
	})
}

func browser() error {
	program, err := chromium.Program()
	if err != nil {
		return err
	}
	return within(func(dir string) error {
		page, err := said(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir="+dir, "--dump-dom", "data:text/html,<p>shown</p>")
		if err == nil && !strings.Contains(page, "<p>shown</p>") {
			err = fmt.Errorf("%s: does not show a page: %q", program, page)
		}
		return err
	})
}

func hosts() error {
	name := fmt.Sprintf("need-%d", os.Getpid())
	if err := runs("ip", "netns", "add", name); err != nil {
		return err
	}
	return errors.Join(
		runs("ip", "-n", name, "link", "add", "name", "lan", "type", "bridge"),
		runs("ip", "-n", name, "link", "add", "name", "eth0", "type", "veth", "peer", "name", "plug", "netns", name),
		runs("ip", "-n", name, "link", "set", "plug", "master", "lan", "up"),
		runs("ip", "-n", name, "addr", "add", "10.77.0.1/24", "dev", "eth0"),
		runs("nsenter", "--net=/run/netns/"+name, "unshare", "--uts", "hostname", "probe"),
		runs("ip", "netns", "del", name),
	)
}
