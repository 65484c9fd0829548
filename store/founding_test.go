package store

import (
	"testing"

	"github.com/musterhq/muster/store/storetest"
)

// The group of a daemon is founded once, also on a data directory of an earlier version, whose group stays there. Another
// daemon on the same directory has another group.
func TestHome(t *testing.T) {
	fs := storetest.Disk()
	s := open(t, fs)
	g, f, err := s.Home("amy")
	if err != nil || !f.Proves("amy", g) {
		t.Fatalf("group %s, founding %s, %v", g, f, err)
	}
	other, _, err := s.Home("bob")
	if err != nil || other == g {
		t.Errorf("bob has the group of amy: %v", err)
	}
	closeStore(t, s)
	s = open(t, fs)
	again, f, err := s.Home("amy")
	if err != nil || again != g || !f.Proves("amy", g) {
		t.Errorf("after a restart: group %s, want %s, %v", again, g, err)
	}
	if g, err := s.Earlier(); err != nil || g != 0 {
		t.Errorf("a new directory has the earlier group %s, %v", g, err)
	}
	if err := s.WriteSync(func(b Batch) error { return b.Set([]byte("r/"+s.Group().String()+"/h"), []byte("x")) }); err != nil {
		t.Fatal(err)
	}
	if g, f, err := s.Home("carl"); err != nil || !f.Proves("carl", g) {
		t.Errorf("directory of an earlier version: group %s, founding %s, %v", g, f, err)
	}
	if g, err := s.Earlier(); err != nil || g != s.Group() {
		t.Errorf("the earlier group is %s, %v; want %s", g, err, s.Group())
	}
	if err := s.WriteSync(func(b Batch) error { return b.Set([]byte(foundingPrefix+"dan"), []byte("short")) }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Home("dan"); err == nil {
		t.Error("a damaged founding is not reported")
	}
	closeStore(t, s)
}
