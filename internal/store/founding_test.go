package store

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

// beforesFounding is the founding of a daemon of the version before, as that version drew it.
var beforesFounding = func() job.Founding {
	f := job.Founding{0: 1}
	for !f.Group("amy").OfVersionBefore() {
		for i := len(f) - 1; ; i-- {
			if f[i]++; f[i] != 0 {
				break
			}
		}
	}
	return f
}()

// The group of a daemon is founded once. Another daemon on the same directory has another group.
func TestHomes(t *testing.T) {
	fs := storetest.Disk()
	s := open(t, fs)
	homes, err := s.Homes("amy")
	if err != nil || len(homes) != 1 || !homes[0].Founding.Proves("amy", homes[0].Group) || homes[0].Group.OfVersionBefore() {
		t.Fatalf("homes %+v, %v", homes, err)
	}
	other, err := s.Homes("bob")
	if err != nil || len(other) != 1 || other[0] == homes[0] {
		t.Errorf("bob has %+v, %v", other, err)
	}
	closeStore(t, s)
	s = open(t, fs)
	if again, err := s.Homes("amy"); err != nil || len(again) != 1 || again[0] != homes[0] {
		t.Errorf("after a restart: %+v, want %+v, %v", again, homes, err)
	}
	for _, v := range []string{"short", string(beforesFounding[:]), strings.Repeat("x", len(beforesFounding))} {
		if err := s.WriteSync(func(b Batch) error { return b.Set([]byte(foundingPrefix+"amy"), []byte(v)) }); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Homes("amy"); err == nil {
			t.Errorf("with the founding %x: %+v", v, got)
		}
	}
	closeStore(t, s)
}

// A data directory of the version before keeps its group for the jobs that are there, and gets another one for new jobs. Its
// founding stays on disk, so that the version before finds it.
func TestHomesOfTheVersionBefore(t *testing.T) {
	s := open(t, storetest.Disk())
	set := func(k, v string) {
		t.Helper()
		if err := s.WriteSync(func(b Batch) error { return b.Set([]byte(k), []byte(v)) }); err != nil {
			t.Fatal(err)
		}
	}
	set(foundingBeforePrefix+"amy", string(beforesFounding[:]))
	own, err := s.Homes("amy")
	if err != nil || len(own) != 1 || own[0].Group.OfVersionBefore() {
		t.Fatalf("without jobs of before: %+v, %v", own, err)
	}
	before := beforesFounding.Group("amy")
	set("r/"+before.String()+"/h", "x")
	for range 2 {
		homes, err := s.Homes("amy")
		if err != nil || len(homes) != 2 || homes[0] != (Home{before, beforesFounding}) || homes[1] != own[0] {
			t.Errorf("with jobs of before: %+v, %v", homes, err)
		}
	}
	if v, err := s.Read([]byte(foundingBeforePrefix + "amy")); err != nil || string(v) != string(beforesFounding[:]) {
		t.Errorf("the founding of before is now %x, %v", v, err)
	}
	// A number that founds a group of this version is not one of before.
	set(foundingBeforePrefix+"amy", string(own[0].Founding[:]))
	if homes, err := s.Homes("amy"); err == nil {
		t.Errorf("with a damaged founding: %+v", homes)
	}
	closeStore(t, s)
}

// A data directory with jobs of a group that nothing proves is refused, and nothing is written.
func TestJobsOfADrawnGroupAreRefused(t *testing.T) {
	s := open(t, storetest.Disk())
	if err := s.WriteSync(func(b Batch) error { return b.Set([]byte("s/"+s.Group().String()+"/j/x"), []byte("x")) }); err != nil {
		t.Fatal(err)
	}
	if homes, err := s.Homes("amy"); err == nil || !strings.Contains(err.Error(), s.Group().String()) {
		t.Errorf("homes %+v, %v", homes, err)
	}
	if v, err := s.Read([]byte(foundingPrefix + "amy")); err != nil || v != nil {
		t.Errorf("a founding was written: %x, %v", v, err)
	}
	closeStore(t, s)
}
