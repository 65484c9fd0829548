package daemon

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/internal/testkit/exetest"
)

// packed compresses a program as make build does.
func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpackedProgramIsReplacedByANewOne(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	first, err := unpack(dir, packed(t, "#!/bin/sh\nexit 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exetest.Write(first, []byte("#!/bin/sh\nexit 4\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if again, err := unpack(dir, packed(t, "#!/bin/sh\nexit 3\n")); err != nil || again != first {
		t.Fatalf("got %s, %v; want %s", again, err, first)
	}
	if text, err := os.ReadFile(first); err != nil || string(text) != "#!/bin/sh\nexit 3\n" {
		t.Errorf("an incomplete program was kept: got %q, %v, want %q", text, err, "#!/bin/sh\nexit 3\n")
	}
	second, err := unpack(dir, packed(t, "#!/bin/sh\nexit 4\n"))
	if err != nil || second == first {
		t.Fatalf("got %s, %v, want another path", second, err)
	}
	if info, err := os.Stat(second); err != nil || info.Mode().Perm()&0o111 != 0o111 {
		t.Errorf("the program cannot be executed by users: got %v, %v", info.Mode(), err)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 || filepath.Join(dir, all[0].Name()) != second {
		t.Errorf("after the second: got files %v, %v, want the second program alone", all, err)
	}
}
