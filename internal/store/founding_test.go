package store

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

// beforesFounding is the founding of a daemon of the version before, as that version made it.
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
func TestHomeGroupIsFoundedOnce(t *testing.T) {
	fs := storetest.Disk()
	s := open(t, fs)
	homes, err := s.Homes("amy")
	if err != nil || len(homes) != 1 || !homes[0].Founding.Proves("amy", homes[0].Group) || homes[0].Group.OfVersionBefore() {
		t.Fatalf("homes: got %+v, %v, want one that is proven", homes, err)
	}
	other, err := s.Homes("bob")
	if err != nil || len(other) != 1 || other[0] == homes[0] {
		t.Errorf("homes of bob: got %+v, %v, want one of his own", other, err)
	}
	closeStore(t, s)
	s = open(t, fs)
	if again, err := s.Homes("amy"); err != nil || len(again) != 1 || again[0] != homes[0] {
		t.Errorf("after a restart: got %+v, want %+v, %v", again, homes, err)
	}
	for _, v := range []string{"short", string(beforesFounding[:]), strings.Repeat("x", len(beforesFounding))} {
		if err := s.WriteSync(func(b Batch) error { return b.Set([]byte(foundingPrefix+"amy"), []byte(v)) }); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Homes("amy"); err == nil {
			t.Errorf("with the founding %x: got %+v, want an error", v, got)
		}
	}
	closeStore(t, s)
}

// A data directory of the version before keeps its group for existing jobs, and gets another one for new jobs. Its
// founding stays on disk, so that the version before finds it.
func TestHomeGroupOfTheVersionBeforeIsKept(t *testing.T) {
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
		t.Fatalf("without earlier jobs: got %+v, %v, want one group of this version", own, err)
	}
	before := beforesFounding.Group("amy")
	set("r/"+before.String()+"/h", "x")
	for range 2 {
		homes, err := s.Homes("amy")
		if err != nil || len(homes) != 2 || homes[0] != (Home{before, beforesFounding}) || homes[1] != own[0] {
			t.Errorf("with earlier jobs: got %+v, %v, want the earlier group and the new one", homes, err)
		}
	}
	if v, err := s.Read([]byte(foundingBeforePrefix + "amy")); err != nil || string(v) != string(beforesFounding[:]) {
		t.Errorf("the earlier founding: got %x, %v, want it unchanged", v, err)
	}
	// The group of a founding of this version cannot be one of the version before.
	set(foundingBeforePrefix+"amy", string(own[0].Founding[:]))
	if homes, err := s.Homes("amy"); err == nil {
		t.Errorf("with a damaged founding: got %+v, want an error", homes)
	}
	closeStore(t, s)
}

// A data directory with jobs of a group that has no proof is refused, and nothing is written.
func TestJobsOfAGroupWithoutAProofAreRefused(t *testing.T) {
	s := open(t, storetest.Disk())
	if err := s.WriteSync(func(b Batch) error { return b.Set([]byte("s/"+s.Group().String()+"/j/x"), []byte("x")) }); err != nil {
		t.Fatal(err)
	}
	if homes, err := s.Homes("amy"); err == nil || !strings.Contains(err.Error(), s.Group().String()) {
		t.Errorf("homes: got %+v, %v, want an error with the group", homes, err)
	}
	if v, err := s.Read([]byte(foundingPrefix + "amy")); err != nil || v != nil {
		t.Errorf("a founding was written: got %x, %v, want nil", v, err)
	}
	closeStore(t, s)
}
