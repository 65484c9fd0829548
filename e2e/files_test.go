//go:build e2e

package e2e

// Files that are copied to tasks and back.

import (
	"bytes"
	bigendian "encoding/binary"
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

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/upload"
)

// project writes n files of size bytes, in directories of a hundred files each.
func project(t *testing.T, n, size int) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.NewChaCha8([32]byte{1})
	data := make([]byte, size)
	for i := range n {
		_, _ = rng.Read(data)
		write(t, filepath.Join(dir, fmt.Sprintf("d%d/f%d", i/100, i)), string(data))
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// in runs a verb in a directory.
func (d *daemon) in(dir string, args ...string) result {
	d.t.Helper()
	script := `cd "$0" && exec "$@"`
	cmd := exec.CommandContext(d.t.Context(), "sh", append([]string{"-c", script, dir, binary(d.t)}, args...)...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code shows an error
	return result{stdout: out.String(), stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
}

// chunks returns the chunks in the daemon's store with the inodes of their files, so that a chunk that is written again
// counts as another one.
func (d *daemon) chunks() map[string]bool {
	d.t.Helper()
	all := map[string]bool{}
	packs, _ := filepath.Glob(filepath.Join(d.dir, "data/blobs/packs/*")) // there may be no store yet
	for _, path := range packs {
		text, err := os.ReadFile(path)
		if err != nil {
			d.t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			d.t.Fatal(err)
		}
		count, names := len(text)-4, int(bigendian.BigEndian.Uint32(text[len(text)-4:]))
		refs, err := upload.ParseRefs(text[count-36*names : count])
		if err != nil {
			d.t.Fatal(err)
		}
		for _, r := range refs {
			all[fmt.Sprintf("%s in %d", r.Hash, info.Sys().(*syscall.Stat_t).Ino)] = true
		}
	}
	return all
}

// untilChunks waits until the daemon's store has a chunk.
func (d *daemon) untilChunks() {
	d.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience); len(d.chunks()) == 0; <-tick.C {
		if time.Now().After(late) {
			d.t.Fatalf("%s got no chunks", d.name)
		}
	}
}

func TestUploadSendsOnlyNewChunks(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	dir := project(t, 1000, 20_000)
	write(t, filepath.Join(dir, "junk.o"), "junk")
	write(t, filepath.Join(dir, ".musterignore"), "*.o\n")
	const count = `find . -type f | wc -l; cat $(find . -name 'f*' | sort) | cksum; test ! -e junk.o`
	want, err := exec.Command("sh", "-c", "cd "+dir+` && cat $(find . -name 'f*' | sort) | cksum`).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []*daemon{cat, ben} {
		r := amy.in(dir, "run", "--upload", ".", "-w", on.name, "--", "sh", "-c", count)
		if lines := strings.Split(r.stdout, "\n"); r.code != 0 || len(lines) < 2 || strings.TrimSpace(lines[0]) != "1001" || lines[1]+"\n" != string(want) {
			t.Fatalf("on %s: exit %d, %q, %s; want %s", on.name, r.code, r.stdout, r.stderr, want)
		}
	}
	before := []map[string]bool{amy.chunks(), ben.chunks(), cat.chunks()}
	if len(before[0]) < 1000 {
		t.Fatalf("got %d chunks at the owner, want at least 1000", len(before[0]))
	}
	from := cat.logged()
	if r := amy.in(dir, "run", "--upload", ".", "-w", "cat", "--", "true"); r.code != 0 {
		t.Fatalf("the second job: got %+v, want exit code 0", r)
	}
	cat.waitLog(from, "files of attempt are here", "fetched=0")
	for i, d := range []*daemon{amy, ben, cat} {
		for c := range d.chunks() {
			if !before[i][c] {
				t.Fatalf("the second job sent a chunk again to %s", d.name)
			}
		}
	}
	// Each task has its own copy: a task does not see the changes of another.
	amy.in(dir, "run", "--upload", ".", "-w", "cat", "--", "sh", "-c", "for f in d0/*; do echo spoilt >$f; done")
	if r := amy.in(dir, "run", "--upload", ".", "-w", "cat", "--", "sh", "-c", count); !strings.Contains(r.stdout, string(want)) {
		t.Errorf("another task's changes are seen: got %q, want %q", r.stdout, want)
	}
}

// TestProgressOfStagingIsShown delays chunks at the owner and checks what is shown for a task that waits for its files.
func TestProgressOfStagingIsShown(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	dir := project(t, 4, 300_000)
	r := amy.in(dir, "submit", "--hold", "--upload", ".", "-w", "cat", "--", "sh", "-c", "cat $(find . -type f) | wc -c")
	if r.code != 0 {
		t.Fatalf("got %+v, want exit code 0", r)
	}
	id := strings.TrimSpace(r.stdout)
	packs, err := filepath.Glob(filepath.Join(amy.dir, "data/blobs/packs/*"))
	if err != nil || len(packs) != 1 {
		t.Fatal(packs, err)
	}
	// Opening a pipe for reading blocks until somebody opens it for writing.
	saved, pipe := filepath.Join(amy.dir, "saved"), filepath.Join(amy.dir, "pipe")
	if err := errors.Join(os.Rename(packs[0], saved), syscall.Mkfifo(pipe, 0o600), os.Link(pipe, packs[0])); err != nil {
		t.Fatal(err)
	}
	amy.ok("release", id)
	const says = "Staging: fetching its files: "
	amy.until(id, "fetching", func(j api.Job) bool {
		return j.State == "STARTING" && j.Tasks[0].Reason == "Staging" && strings.Contains(ben.ok("show", id), says)
	})
	for verb, state := range map[string]string{"show": "STARTING", "why": "STARTING", "jobs": " ST "} {
		args := []string{verb, id}
		if verb == "jobs" {
			args = args[:1]
		}
		if text := ben.ok(args...); !strings.Contains(text, state) || !strings.Contains(text, "Staging") {
			t.Errorf("%s: want the state and the reason, got\n%s", verb, text)
		}
	}
	if text := ben.ok("why", id); !strings.Contains(text, " of 1.2 MB from amy") {
		t.Errorf("why: want the progress, got\n%s", text)
	}
	if err := os.Rename(saved, packs[0]); err != nil {
		t.Fatal(err)
	}
	// The pipe is empty, which is not a valid chunk, so the chunk is requested again.
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil || writer.Close() != nil {
		t.Fatal(err)
	}
	amy.untilState(id, "SUCCEEDED")
	if text := strings.TrimSpace(amy.ok("logs", id)); text != "1200000" {
		t.Errorf("the task read %q bytes, want 1200000", text)
	}
}

func TestInvalidUploadsAreRefused(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), strings.Repeat("x", 1000))
	for _, c := range []struct {
		link string
		args []string
		says string
	}{
		{"", []string{"--upload", ".", "--upload-limit", "10B"}, "--upload-limit"},
		{"", []string{"--upload", "nothing"}, "nothing: no such file"},
		{"", []string{"--download", "../x"}, "../x"},
		{"", []string{"--download", "/etc/passwd"}, "/etc/passwd"},
		{"/etc/passwd", []string{"--upload", "."}, "outside"},
		{"../f", []string{"--upload", "."}, "outside"},
	} {
		link := filepath.Join(dir, "link")
		if c.link != "" {
			if err := os.Symlink(c.link, link); err != nil {
				t.Fatal(err)
			}
		}
		r := amy.in(dir, append(append([]string{"submit"}, c.args...), "--", "true")...)
		amy.wantFailure(r, 2, []string{c.says}, c.args)
		_ = os.Remove(link)
	}
}

func TestDownloadCopiesRequestedFiles(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	dir, here := t.TempDir(), t.TempDir()
	const task = `mkdir -p ckpt/deep && echo 1 > ckpt/a && echo 2 > ckpt/deep/b && echo no > other && ln -s /etc/passwd ckpt/evil; exit 3`
	if r := amy.in(here, "run", "-w", "cat", "--download", "ckpt/*", "--", "sh", "-c", task); r.code != 3 {
		t.Fatalf("got %+v, want exit code 3", r)
	}
	check := func(path, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: got %q, %v, want %q", path, text, err, want)
		}
	}
	check(filepath.Join(here, "ckpt/a"), "1\n")
	check(filepath.Join(here, "ckpt/deep/b"), "2\n")
	if _, err := os.Lstat(filepath.Join(here, "ckpt/evil")); err == nil {
		t.Error("a link that leads out of the task's directory was downloaded")
	}
	ben.ok("cp", "last:ckpt/*", dir)
	check(filepath.Join(dir, "a"), "1\n")
	check(filepath.Join(dir, "deep/b"), "2\n")
	ben.fails(1, []string{"no files are kept"}, "cp", "last:other", dir)
	ben.fails(2, []string{"../x"}, "cp", "last:../x", dir)

	g := newGate(t)
	id := amy.ok("submit", "-w", "cat", "--", "sh", "-c", "echo now > now; "+g.script("true")[2])
	amy.untilState(id, "RUNNING")
	amy.until(id, "at the gate", func(api.Job) bool { return strings.Contains(cat.muster("logs", id).stdout, "before") })
	ben.ok("cp", id+":now", dir)
	check(filepath.Join(dir, "now"), "now\n")
	g.open()
	amy.untilState(id, "SUCCEEDED")
	ben.fails(1, []string{"no files are kept"}, "cp", id+":now", dir)
}

// TestFIFOKeepsNobodyWaiting leaves a FIFO where a directory is expected. The end of the task does not wait for a
// writer, nor does a copy, nor the next daemon.
func TestFIFOKeepsNobodyWaiting(t *testing.T) {
	d := newDaemon(t, "amy", "--gpus", "none").start()
	made, end := newGate(t), newGate(t)
	id := d.ok("submit", "--download", "f/*", "--", "sh", "-c", "mkfifo f; "+made.script(end.script("exit 0")[2])[2])
	made.open()
	d.fails(1, []string{"no file matched f/*"}, "cp", id+":f/*", t.TempDir())
	end.open()
	d.untilState(id, "SUCCEEDED")
	d.kill()
	d.start()
	d.untilState(d.ok("submit", "--", "true"), "SUCCEEDED")
}

// TestUploadSurvivesKills kills each of the three processes that an upload needs. Chunks that have arrived are not sent
// again.
func TestUploadSurvivesKills(t *testing.T) {
	t.Parallel()
	amy, _, cat := three(t)
	dir := project(t, 300, 200_000)

	client := exec.Command(binary(t), "submit", "--upload", ".", "--", "true")
	client.Dir, client.Env = dir, append(os.Environ(), "MUSTER_SOCKET="+amy.socket)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	amy.untilChunks()
	_ = client.Process.Kill()
	_ = client.Wait()
	had := amy.chunks()

	client = exec.Command(binary(t), "submit", "--upload", ".", "-w", "cat", "--", "sh", "-c", "find . -name 'f*' | wc -l")
	client.Dir, client.Env = dir, append(os.Environ(), "MUSTER_SOCKET="+amy.socket)
	var out bytes.Buffer
	client.Stdout, client.Stderr = &out, os.Stderr
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	amy.kill() // the client waits until it is back
	amy.start()
	if err := client.Wait(); err != nil {
		t.Fatal(err)
	}
	now := amy.chunks()
	for c := range had {
		if !now[c] {
			t.Fatal("a chunk was sent twice")
		}
	}
	cat.untilChunks()
	cat.kill()
	had = cat.chunks()
	cat.start()
	id := strings.TrimSpace(out.String())
	amy.untilState(id, "SUCCEEDED")
	if text := strings.TrimSpace(amy.ok("logs", id)); text != "300" {
		t.Errorf("the task saw %q files, want 300", text)
	}
	now = cat.chunks()
	for c := range had {
		if !now[c] {
			t.Fatal("a chunk was fetched twice")
		}
	}
}
