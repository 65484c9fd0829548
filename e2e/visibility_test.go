//go:build e2e

package e2e

// What users see of each other's jobs, at both daemons of a cluster.

import (
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOutputIsVisibleToItsUserOnly runs a job of one user, and views it as another user and as root.
func TestOutputIsVisibleToItsUserOnly(t *testing.T) {
	t.Parallel()
	asRoot(t)
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--no-worker").start(amy.invite().flags()...)
	amy.untilNodes(2)
	as := func(who *syscall.Credential) { amy.user, ben.user = who, who }
	as(ordinary)
	const script = "echo hush; echo hush-error >&2; echo hush > kept; chmod 644 kept; exit 3"
	submit := func(more ...string) string {
		args := append([]string{"submit", "-J", "public-name", "--env", "SECRET=hush", "--download", "kept"}, more...)
		id := amy.ok(append(args, "--", "sh", "-c", script)...)
		amy.untilState(id, "FAILED")
		return id
	}
	id := submit()
	both := []*daemon{amy, ben}

	for _, d := range both {
		if out := d.ok("logs", id); !strings.Contains(out, "hush") {
			t.Errorf("at %s its user reads %q, want the output", d.name, out)
		}
		if show := d.ok("show", id); !strings.Contains(show, "echo hush") || !strings.Contains(show, "hush-error") {
			t.Errorf("at %s its user: want the job file and stderr, got\n%s", d.name, show)
		}
	}
	as(system)
	for _, d := range both {
		for _, args := range [][]string{{"logs", id}, {"cp", id + ":kept", t.TempDir()}, {"cancel", id}, {"requeue", id}} {
			d.fails(1, []string{"belongs to nobody, and you are " + systemName}, args...)
		}
		for _, args := range [][]string{{"show", id}, {"show", id, "--json"}, {"jobs", "--all"}, {"jobs", "--all", "--json"}, {"why", id}} {
			text := d.ok(args...)
			if strings.Contains(text, "hush") || (args[0] != "why" && !strings.Contains(text, "public-name")) {
				t.Errorf("at %s another user sees by %q\n%s\nwant only the public part", d.name, args, text)
			}
		}
	}
	as(ordinary)
	shared := submit("--share-output")
	as(system)
	for _, d := range both {
		for _, args := range [][]string{{"cp", shared + ":kept", t.TempDir()}, {"requeue", shared}} {
			d.fails(1, []string{"belongs to nobody, and you are " + systemName}, args...)
		}
		if out := d.ok("logs", shared); !strings.Contains(out, "hush") {
			t.Errorf("at %s another user reads of shared output %q, want it", d.name, out)
		}
	}
	checkKeptFiles(t, amy)
	as(nil)
	for _, d := range both {
		if out := d.ok("logs", id); !strings.Contains(out, "hush") {
			t.Errorf("at %s root reads %q, want the output", d.name, out)
		}
	}

	amy.kill()
	amy.start("--visibility", "own")
	amy.untilNodes(2)
	as(system)
	for _, d := range both {
		if text := d.ok("jobs", "--all"); strings.Contains(text, "public-name") {
			t.Errorf("with visibility own another user sees at %s\n%s\nwant nothing", d.name, text)
		}
		d.fails(1, []string{id}, "show", id)
		d.fails(1, []string{shared}, "logs", shared)
	}
	as(ordinary)
	for _, d := range both {
		if text := d.ok("jobs", "--all"); !strings.Contains(text, "public-name") {
			t.Errorf("with visibility own its user sees at %s\n%s\nwant the job", d.name, text)
		}
	}
}

// checkKeptFiles checks that only its user can reach the kept files of a task.
func checkKeptFiles(t *testing.T, d *daemon) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(filepath.Join(d.dir, "data", "run"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "files" || !e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		found++
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != nobody || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: got mode %s, %+v, want 0700 of the user", path, info.Mode(), info.Sys())
		}
		return fs.SkipDir
	})
	if err != nil || found != 2 {
		t.Errorf("got %d directories of kept files, %v, want 2", found, err)
	}
}
