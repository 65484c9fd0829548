//go:build e2e

package e2e

// Hosts that send other files than those that were asked for.

import (
	"archive/tar"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/testkit/rogue"
)

// liar serves files of attempts: the requested ones, and more.
type liar struct{ more []tar.Header }

func (l liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/files") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Trailer", "Muster-End")
	out := tar.NewWriter(w)
	const text = "result\n"
	_ = out.WriteHeader(&tar.Header{Name: "out.txt", Typeflag: tar.TypeReg, Size: int64(len(text)), Mode: 0o644})
	_, _ = out.Write([]byte(text))
	const evil = "evil\n"
	for _, h := range l.more {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(evil))
		}
		_ = out.WriteHeader(&h)
		if h.Typeflag == tar.TypeReg {
			_, _ = out.Write([]byte(evil))
		}
	}
	_ = out.Close()
	w.Header().Set("Muster-End", strconv.Itoa(1))
}

// files returns the files below a directory with their text.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(at string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(at)
		name, _ := filepath.Rel(dir, at)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFilesOfARogueWorkerAreLimitedToTheRequest copies out.txt from a guest that also sends files that a shell and an
// SSH server read.
func TestFilesOfARogueWorkerAreLimitedToTheRequest(t *testing.T) {
	t.Parallel()
	root := newDaemon(t, "root", "--gpus", "none", "--no-worker").start()
	inv := root.invite("--roles", "worker")
	guest := rogue.Join(t, "guest", inv.Bootstrap, inv.Token)
	guest.Serve(liar{[]tar.Header{
		{Name: ".bashrc", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: ".ssh/", Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: ".ssh/authorized_keys", Typeflag: tar.TypeReg, Mode: 0o600},
	}})
	guest.Work(root.id(), "guest")
	id := root.ok("submit", "--download", "out.txt", "--", "true")
	root.untilState(id, "SUCCEEDED")

	mine := map[string]string{".bashrc": "my own\n"}
	home := func() string {
		dir := t.TempDir()
		write(t, filepath.Join(dir, ".bashrc"), mine[".bashrc"])
		return dir
	}
	want := maps.Clone(mine)
	want["out.txt"] = "result\n"
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"cp", id + ":out.txt", "."}, 1, "was not asked for"},
		{[]string{"cp", "--force", id + ":out.txt", "."}, 1, "was not asked for"},
		{[]string{"cp", id + ":o*", "."}, 1, "was not asked for"},
		{[]string{"cp", "-f", id + ":*", "."}, 0, "hidden"},
		{[]string{"cp", id + ":", "."}, 0, "hidden"},
		{[]string{"submit", "-W", "--download", "out.txt", "--", "true"}, 125, "was not asked for"},
		{[]string{"submit", "-W", "--download", "*", "--", "true"}, 0, "hidden"},
	} {
		dir := home()
		r := root.in(dir, c.args...)
		if r.code != c.code || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%q: exit %d, %s, want %d with %q", c.args, r.code, r.stderr, c.code, c.says)
		}
		if got := filesBelow(t, dir); !maps.Equal(got, want) {
			t.Errorf("%q left %q, want %q", c.args, got, want)
		}
	}
}
