//go:build e2e

package e2e

// make install: the man pages and the completion scripts, in the shells of this host.

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/needtest"
)

// installed runs make install below a new directory, and returns the directory below PREFIX.
func installed(t *testing.T) string {
	t.Helper()
	binary(t)
	dest := t.TempDir()
	if out, err := exec.Command("make", "-C", "..", "install", "DESTDIR="+dest, "PREFIX=/opt/muster").CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	return filepath.Join(dest, "opt/muster")
}

// plainPage returns a page of man without bold letters, which it writes as a letter, a backspace and the letter again.
func plainPage(out []byte) string {
	return regexp.MustCompile(`.\x08`).ReplaceAllString(string(out), "")
}

// The files for Prometheus and Grafana are installed unchanged.
func TestMonitoringFilesAreInstalled(t *testing.T) {
	root := installed(t)
	for _, file := range []string{"grafana/muster.json", "prometheus/prometheus.yml", "prometheus/alerts.yml", "prometheus/dcgm.yml"} {
		want, err := os.ReadFile(filepath.Join("../packaging", file))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, "share/muster", file)
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, got %d bytes, want %d", path, err, len(got), len(want))
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o644 {
			t.Errorf("%s has the mode %s, want 0644", path, info.Mode())
		}
	}
}

func TestManPagesAreInstalledWithoutWarnings(t *testing.T) {
	t.Parallel()
	root := installed(t)
	pages, err := filepath.Glob(filepath.Join(root, "share/man/man*/*"))
	if err != nil || len(pages) < 30 {
		t.Fatalf("got %d man pages: %v, want at least 30", len(pages), err)
	}
	for _, want := range []string{"man1/muster.1", "man1/muster-submit.1", "man1/muster-node-drain.1", "man5/muster-config.5", "man5/muster-job.5"} {
		if _, err := os.Stat(filepath.Join(root, "share/man", want)); err != nil {
			t.Error(err)
		}
	}
	t.Run("man", func(t *testing.T) {
		asked := []string{"--warnings", "-E", "UTF-8", "-l", "-Tutf8"} // of man-db and groff
		man := needtest.Runs(t, "man", append(asked, emptyPage(t))...)
		for _, page := range pages {
			cmd := exec.Command(man, append(asked, page)...)
			cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || errs.Len() > 0 || !strings.Contains(plainPage(out), "\nNAME\n") {
				t.Errorf("%s: got %v, want a page without warnings\n%s", filepath.Base(page), err, errs.String())
			}
		}
	})
	t.Run("mandoc", func(t *testing.T) {
		mandoc := needtest.Runs(t, "mandoc", "-T", "ascii", emptyPage(t))
		if out, err := exec.Command(mandoc, append([]string{"-T", "lint", "-W", "warning"}, pages...)...).CombinedOutput(); err != nil {
			t.Errorf("mandoc: got %v, want no warnings\n%s", err, out)
		}
	})
	if out, err := exec.Command("make", "-C", "..", "uninstall", "DESTDIR="+strings.TrimSuffix(root, "/opt/muster"), "PREFIX=/opt/muster").CombinedOutput(); err != nil {
		t.Fatalf("make uninstall: %v\n%s", err, out)
	}
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("make uninstall left %s", path)
		}
		return nil
	})
}

// emptyPage makes a man page without contents.
func emptyPage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty.1")
	write(t, path, ".TH EMPTY 1\n.SH NAME\nempty \\- says nothing\n")
	return path
}

// shellCompletions are the commands that print what each shell suggests for a line, one word in each line, and a
// command that says whether the shell has what it needs for that.
var shellCompletions = map[string]struct{ needs, installed, script string }{
	"bash": {"true", "share/bash-completion/completions/muster", `
. "$SCRIPT"
read -r -a COMP_WORDS <<<"$LINE"
[[ $LINE == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_muster
printf '%s\n' "${COMPREPLY[@]}"`},
	"fish": {"true", "share/fish/vendor_completions.d/muster.fish", `
source $SCRIPT
complete -C "$LINE" | string replace -r '\t.*' ''
true`},
	"zsh": {"autoload -Uz compinit && compinit -D", "share/zsh/site-functions/_muster", `
autoload -Uz compinit
compinit -D
_files() { : }
_describe() { local -a items=("${(@P)@[-1]}"); print -rl -- ${items%%:*} }
source "$SCRIPT"
words=(${=LINE}); [[ $LINE == *' ' ]] && words+=("")
CURRENT=$#words
_muster
true`},
}

func TestCompletionWorksInShells(t *testing.T) {
	root := installed(t)
	d := newDaemon(t, "n1", "--gpus", "sim:2xH100-80GB").start()
	id := d.ok("submit", "--hold", "--name", "later", "--", "true")
	for shell, c := range shellCompletions {
		t.Run(shell, func(t *testing.T) {
			path := needtest.Runs(t, shell, "-c", c.needs)
			suggest := func(line string) string {
				cmd := exec.Command(path, "-c", c.script)
				cmd.Env = append(os.Environ(), "SCRIPT="+filepath.Join(root, c.installed), "LINE="+line, "MUSTER_SOCKET="+d.socket, "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%q: %v\n%s", line, err, out)
				}
				return strings.Join(strings.Fields(string(out)), " ")
			}
			for line, want := range map[string]string{
				"muster requ":                "requeue",
				"muster node dr":             "drain",
				"muster submit --gpu-":       "--gpu-mem --gpu-share",
				"muster jobs --state PRE":    "PREEMPTED",
				"muster submit --policy pa":  "pack",
				"muster node drain n":        "n1",
				"muster submit --nodelist n": "n1",
				"muster show " + id[:6]:      id,
				"muster release " + id[:4]:   id,
				"muster exec " + id[:4]:      "", // it does not run
			} {
				if got := suggest(line); got != want {
					t.Errorf("%q: got %q, want %q", line, got, want)
				}
			}
		})
	}
}

// A daemon that is missing or does not answer gives no suggestion, no message, and no wait.
func TestCompletionWithoutAnAnswerIsQuick(t *testing.T) {
	dir := t.TempDir()
	silent, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, socket := range map[string]string{"no daemon": filepath.Join(dir, "none"), "no answer": filepath.Join(dir, "s")} {
		const tries, most = 5, 300 * time.Millisecond
		best := time.Hour // of a few tries, because other tests use the processors too
		for range tries {
			cmd := exec.Command(binary(t), "show", "", "--generate-completion")
			cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+socket)
			start := time.Now()
			out, err := cmd.CombinedOutput()
			best = min(best, time.Since(start))
			if fmt.Sprint(err) != "exit status 1" || len(out) > 0 {
				t.Fatalf("%s: got %v, %q, want exit status 1 and nothing", name, err, out)
			}
		}
		if best > most {
			t.Errorf("%s: the fastest answer took %s, want at most %s", name, best, most)
		}
		t.Logf("%s: %s", name, best)
	}
}
