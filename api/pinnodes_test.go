package api

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// The meaning of a name is decided when the job is accepted. A name of two nodes is refused.
func TestNamesOfNodesAreResolvedOnSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		cal.name = "ben" // its peer ID stays
		both := []string{string(ben.peer), string(cal.peer)}
		submit := func(change func(*job.Spec)) (Job, error) {
			spec := job.DefaultSpec()
			spec.Command = []string{"true"}
			change(&spec)
			return amy.client.Submit(t.Context(), spec, "")
		}
		for what, change := range map[string]func(*job.Spec){
			"nodelist":         func(s *job.Spec) { s.NodeList = []string{"amy", "ben"} },
			"exclude":          func(s *job.Spec) { s.Exclude = []string{"ben"} },
			"nodelist b*":      func(s *job.Spec) { s.NodeList = []string{"amy", "b*"} },
			"nodelist be[l-n]": func(s *job.Spec) { s.NodeList = []string{"be[l-n]"} },
			"exclude *":        func(s *job.Spec) { s.Exclude = []string{"*"} },
			"constraint":       func(s *job.Spec) { s.Constraint = "rack=r1|name=ben" },
		} {
			_, err := submit(change)
			if !errors.Is(err, ErrBad) || !strings.HasPrefix(err.Error(), "invalid request: "+strings.Fields(what)[0]) || !strings.Contains(err.Error(), both[0]) || !strings.Contains(err.Error(), both[1]) {
				t.Errorf("%s with a name of two nodes: got %v, want ErrBad with both IDs", what, err)
			}
			spec := job.DefaultSpec()
			spec.Command = []string{"true"}
			change(&spec)
			if _, err := amy.client.Offers(t.Context(), spec); !errors.Is(err, ErrBad) {
				t.Errorf("offers, %s: got %v, want ErrBad", what, err)
			}
		}
		j, err := submit(func(s *job.Spec) {
			s.NodeList = []string{"amy", "a*", "unknown", string(cal.peer)}
			s.Exclude = []string{string(ben.peer)[len(ben.peer)-6:]}
			s.Constraint = "name!=amy"
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{`nodelist: no node goes by "unknown"`}; !slices.Equal(j.Warnings, want) {
			t.Errorf("warnings: got %q, want %q", j.Warnings, want)
		}
		if again, err := amy.client.Job(t.Context(), j.ID); err != nil || again.Warnings != nil {
			t.Errorf("later: got warnings %q, %v, want none", again.Warnings, err)
		}
		many, err := submit(func(s *job.Spec) { s.Exclude = strings.Fields("ben2 b3 b4 b5 b6 b7 b8 b9 b10 b11") })
		if want := `exclude: no node goes by "ben2", "b3", "b4", "b5", "b6", "b7", "b8", "b9" and 2 more names`; err != nil || len(many.Warnings) != 1 || many.Warnings[0] != want {
			t.Errorf("warnings: got %q, %v, want %q", many.Warnings, err, want)
		}
		want := "amy=" + string(amy.peer) + " a* unknown ben=" + string(cal.peer) + " ben=" + string(ben.peer)
		if got := strings.Join(append(j.Spec.NodeList, j.Spec.Exclude...), " "); got != want {
			t.Errorf("got nodes %s, want %s", got, want)
		}
	})
}

// For 1,024 names the 10,000 members are searched once for each length of a name.
func TestNamesAreResolvedWithOneSearchOfTheMembers(t *testing.T) {
	n := namedMembers{byName: map[string][]Member{}, byEnd: map[int]map[string][]int{}}
	for i := range 10_000 {
		m := Member{Peer: job.Peer("12D3KooW" + strings.Repeat(string(rune('a'+i%26)), 30) + job.NewID(7, uint64(i)).Group().String() + string(job.NewID(7, uint64(i)))), Name: "n" + string(job.NewID(7, uint64(i)))}
		n.all = append(n.all, m)
		n.byName[m.Name] = append(n.byName[m.Name], m)
	}
	var list []string
	for i := range 1024 {
		list = append(list, n.all[i*9].Name)
	}
	out, err := n.pin("nodelist", list)
	if err != nil || len(out) != len(list) || !strings.HasSuffix(out[1], "="+string(n.all[9].Peer)) {
		t.Fatalf("got %v, %v, want all names resolved", out[:2], err)
	}
	if len(n.byEnd) != 1 {
		t.Errorf("the members were searched %d times for names of one length, want 1", len(n.byEnd))
	}
}

// A preference that no node meets is most likely misspelt. There is no warning if a node about which nothing is known
// may meet it.
func TestPreferenceThatNoNodeMeetsIsAWarning(t *testing.T) {
	profile := func(peer job.Peer, own, signed map[string]string) Member {
		return Member{Peer: peer, Profile: contract.Profile{Peer: peer, Labels: own, Signed: signed}}
	}
	rack := map[string]string{"rack": "r1"}
	amy, ben := profile("amy", rack, nil), profile("ben", rack, rack)
	for _, c := range []struct {
		prefer  string
		trusted bool
		members []Member
		want    []string
	}{
		{"rack=r1", false, []Member{amy}, nil},
		{"rack=r1", true, []Member{amy}, []string{`prefer: no node meets "rack=r1"`}},
		{"rack=r1", true, []Member{amy, ben}, nil},
		{"rakc=r1:9,rack=r1,rack=r2", false, []Member{amy, ben}, []string{`prefer: no node meets "rakc=r1"`, `prefer: no node meets "rack=r2"`}},
		{"rack=r2", false, []Member{amy, {Peer: "cat"}}, nil},
		{"", false, []Member{amy}, nil},
	} {
		s := job.Spec{Prefer: c.prefer, TrustedLabels: c.trusted}
		if got := unmet(s.Preferences(), c.members); !slices.Equal(got, c.want) {
			t.Errorf("%q, trusted %v: got %q, want %q", c.prefer, c.trusted, got, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy", "ben").daemons[0]
		spec := job.DefaultSpec()
		spec.Command, spec.Prefer = []string{"true"}, "rack=r9:3"
		if j, err := amy.client.Submit(t.Context(), spec, ""); err != nil || !slices.Equal(j.Warnings, []string{`prefer: no node meets "rack=r9"`}) {
			t.Errorf("got %q, %v, want one warning about rack=r9", j.Warnings, err)
		}
	})
}
