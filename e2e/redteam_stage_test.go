//go:build e2e

package e2e

// The stage of the red team: the cluster that is attacked, and its honest work.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// mostSubmit is how much longer a submit may take than the same one at a daemon that nobody attacks.
const mostSubmit = time.Second

// scene is a daemon of root with two ordinary users, and a member that an ordinary user runs. Without root all of them
// are one user, and attacks that need several are skipped.
type scene struct {
	t       *testing.T
	program string // a copy that all users may run
	root    *daemon
	member  *daemon
	control *daemon // of another cluster on the same host: delays there do not come from an attacker
	victim  *syscall.Credential
	mallory *syscall.Credential
	home    string // of mallory; everybody may look into it
	honest  []honestTask
	peers   map[*daemon]job.Peer
}

// honestTask is a task that nobody has a reason to end, with the ledger in which it writes how often it began.
type honestTask struct {
	owner      *daemon
	id, ledger string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, home: openDir(t)}
	s.program = filepath.Join(openDir(t), "muster")
	text, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.program, text, 0o755); err != nil { //nolint:gosec // other users run it
		t.Fatal(err)
	}
	common := []string{"--gpus", "none", "--log-level", "info", "--config", os.DevNull}
	var within []string
	if os.Geteuid() == 0 {
		uid := 30_000 + rand.Uint32N(20_000) //nolint:gosec // not those of another run on this host
		s.victim, s.mallory = &syscall.Credential{Uid: uid, Gid: uid}, &syscall.Credential{Uid: uid + 1, Gid: uid + 1}
		accounts := fmt.Sprintf("victim:x:%d:%d::/tmp:/bin/sh\nmallory:x:%d:%d::%s:/bin/sh\n", uid, uid, uid+1, uid+1, s.home)
		// its kernel.domainname is its own
		within = append([]string{"unshare", "-u"}, withAccounts(t, accounts)...)
		if err := os.Chown(s.home, int(uid)+1, int(uid)+1); err != nil {
			t.Fatal(err)
		}
	}
	s.root = newDaemonAt(t, within, "127.0.0.1", "root", append(common, "--cpus", "8")...)
	s.member = newDaemon(t, "member", append(common, "--cpus", "2")...)
	s.control = newDaemonAt(t, within, "127.0.0.1", "control", append(common, "--cpus", "2")...)
	s.member.user = s.victim
	if os.Geteuid() == 0 {
		if err := os.Chown(s.member.dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		s.member.as, s.member.user = ordinary, ordinary
	}
	s.root.start()
	s.control.start()
	inv := s.root.invite()
	s.member.env = []string{"MUSTER_TOKEN=" + inv.Token}
	s.member.start(inv.flags()[:2*len(inv.Bootstrap)]...)
	for _, d := range []*daemon{s.root, s.member, s.control} {
		if err := os.Chmod(d.dir, 0o711); err != nil { //nolint:gosec // so that users reach the socket
			t.Fatal(err)
		}
	}
	s.root.untilNodes(2)
	s.member.untilNodes(2)
	s.peers = map[*daemon]job.Peer{s.root: s.root.id(), s.member: s.member.id()}
	t.Cleanup(func() { // while their daemons run
		for _, h := range s.honest {
			s.as(h.owner, nil, "", "cancel", h.id)
			s.as(h.owner, nil, "", "wait", h.id)
		}
	})
	if wrong := s.work(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return s
}

// openDir makes a directory that all users can look into.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-red-") //nolint:usetesting // that one is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as said
		t.Fatal(err)
	}
	return dir
}

// work starts the honest tasks, each over a session between two daemons. One of them is preemptible.
func (s *scene) work() (wrong []string) {
	s.honest = nil
	for _, x := range []struct {
		owner *daemon
		args  []string
	}{
		{s.member, []string{"-w", "root", "--preemptible", "--priority", "20"}},
		{s.root, []string{"-w", "member"}},
	} {
		h := honestTask{owner: x.owner, ledger: filepath.Join(openDir(s.t), "ledger")}
		if err := errors.Join(os.WriteFile(h.ledger, nil, 0o600), os.Chmod(h.ledger, 0o666)); err != nil { //nolint:gosec // the task is another user's
			return append(wrong, err.Error())
		}
		script := fmt.Sprintf(`echo began >> %s; trap 'echo signal >> %[1]s; exit 1' TERM INT HUP; while :; do sleep 1000 & wait; done`, h.ledger)
		r := s.as(x.owner, s.owner(), "", append(append([]string{"submit"}, x.args...), "--", "sh", "-c", script)...)
		if r.code != 0 {
			return append(wrong, "an honest task is refused: "+r.stderr)
		}
		h.id = strings.TrimSpace(r.stdout)
		for late := time.Now().Add(patience); h.readLedger() != "began\n"; <-time.NewTimer(50 * time.Millisecond).C {
			if time.Now().After(late) {
				return append(wrong, fmt.Sprintf("a new honest task of %s does not start: its ledger is %q", x.owner.name, h.readLedger()))
			}
		}
		s.honest = append(s.honest, h)
	}
	return wrong
}

// readLedger returns what is in the ledger.
func (h honestTask) readLedger() string {
	text, _ := os.ReadFile(h.ledger) // a ledger that cannot be read counts as empty, which is wrong too
	return string(text)
}

// owner is the user of honest tasks, for whom both daemons run tasks.
func (s *scene) owner() *syscall.Credential {
	if s.victim == nil {
		return nil
	}
	return ordinary
}

// as runs the program as a user, in a directory or in that of the test, and never ends the test. A verb that has not
// ended in time has the code -1.
func (s *scene) as(d *daemon, who *syscall.Credential, dir string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.asOnce(exec.CommandContext(ctx, s.program, args...), d, who, dir)
}

func (s *scene) asOnce(cmd *exec.Cmd, d *daemon, who *syscall.Credential, dir string) result {
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, &stdout, &stderr, 5*time.Second
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket, "HOME="+s.home)
	if who != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	}
	begin := time.Now()
	err := cmd.Run()
	r := result{stdout: stdout.String(), stderr: stderr.String(), took: time.Since(begin)}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil:
		r.code, r.stderr = -1, r.stderr+err.Error()
	}
	return r
}

// checkHonestTasks returns what has happened to the honest tasks, and starts those again that ended.
func (s *scene) checkHonestTasks() (wrong []string) {
	for _, h := range s.honest {
		if text := h.readLedger(); text != "began\n" {
			wrong = append(wrong, fmt.Sprintf("an honest task of %s wrote %q", h.owner.name, text))
			continue
		}
		r := s.as(h.owner, s.owner(), "", "show", h.id)
		if r.code != 0 || !strings.Contains(r.stdout, "RUNNING") {
			wrong = append(wrong, fmt.Sprintf("an honest task of %s: exit %d: %.300s%.300s", h.owner.name, r.code, r.stdout, r.stderr))
		}
	}
	if len(wrong) > 0 {
		for _, h := range s.honest {
			s.as(h.owner, nil, "", "cancel", h.id)
		}
		wrong = append(wrong, s.work()...)
	}
	return wrong
}

// leftovers returns the processes of mallory that an attack has left.
func (s *scene) leftovers() []string {
	if s.mallory == nil {
		return nil
	}
	var left []string
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range all {
		text, _ := os.ReadFile(path) // it may have ended
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" && f[1] == fmt.Sprint(s.mallory.Uid) {
				left = append(left, strings.Fields(string(text))[1]+" "+filepath.Base(filepath.Dir(path)))
			}
		}
	}
	return left
}
