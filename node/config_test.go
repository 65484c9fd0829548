package node

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFindSocketSkipsSocketOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, host, none := filepath.Join(dir, "own"), filepath.Join(dir, "host"), filepath.Join(dir, "none")
	for _, path := range []string{own, host} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uid := os.Getuid()
	for _, c := range []struct {
		own, host string
		uid       int
		want      string
	}{
		{own, host, uid, own},
		{own, none, uid, own},
		{own, host, uid + 1, host},
		{own, none, uid + 1, none},
		{none, host, uid, host},
		{none, none, uid, none},
	} {
		if got := findSocket(c.own, c.host, c.uid); got != c.want {
			t.Errorf("findSocket(%s, %s, %d) = %s, want %s", c.own, c.host, c.uid, got, c.want)
		}
	}
}
