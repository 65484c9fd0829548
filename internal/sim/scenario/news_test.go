package scenario

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/report"
)

// faultScript has a host, a daemon that accepts jobs, a rack and a spine fail, and disconnects half of the leaves.
const faultScript = `at_s,kind,what,for_s
1000,host,host-00003,600
1500,daemon,host-00005,20
2000,rack,leaf1,600
3000,switch,spine0,600
4000,cut,"leaf0,leaf1",600
5000,switch,leaf3,60
`

// With each way of distributing news, with faults and loss: nothing runs twice, nothing is lost, and the same seed
// gives the same document.
func TestEachWayOfNewsSurvivesFaults(t *testing.T) {
	for _, way := range Ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var docs [2]bytes.Buffer
			for i := range docs {
				s := small(t, 4)
				s.News = News{Way: way, Stale: 500 * time.Millisecond}
				s.Checkpoint, s.Loss = 2*time.Minute, 0.001
				var err error
				if s.Faults, err = ReadScript("faults.csv", strings.NewReader(faultScript), &s.Load); err != nil {
					t.Fatal(err)
				}
				referee, err := report.NewReferee(&s.Load, report.Rules{Restart: s.Restart, Checkpoint: s.Checkpoint, Slack: time.Hour, Undone: true})
				if err != nil {
					t.Fatal(err)
				}
				s.Log = refereed{t, referee}
				out, err := s.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				f, n := out.Document.Runs[0].Figures, out.Document.Information
				if referee.Open() != 0 || f.Jobs.Finished != f.Jobs.Submitted || out.Result.Defects != 0 {
					t.Errorf("%d jobs have finished, want %d; %d defects, want none", f.Jobs.Finished, f.Jobs.Submitted, out.Result.Defects)
				}
				if !strings.HasSuffix(n.Way, way) || n.Messages == 0 || n.Bytes == 0 || n.LinkBytes == 0 || n.Published == 0 || n.Offers == 0 || n.AgeMean < 0.3 || n.Stale != 0.5 {
					t.Errorf("got %+v, want messages, offers and the age of this way", n)
				}
				if carried := way != BySessions; carried != (n.Reach99 > 0) {
					t.Errorf("99 %% of the hosts know after %v, want above 0 exactly if news is distributed", n.Reach99)
				}
				if err := report.Write(&docs[i], &out.Document); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(docs[0].Bytes(), docs[1].Bytes()) {
				t.Error("the second run differs")
			}
		})
	}
}

// News needs no topology. The usual way, if it is named, changes nothing in the run.
func TestNewsWorksWithoutATopology(t *testing.T) {
	figures := func(n News) string {
		s := small(t, 2)
		s.Topology, s.News = nil, n
		out, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i := out.Document.Information; n.Way == ByMST && (i.Reach99 == 0 || i.LinkBytes != 0 || i.Messages == 0) {
			t.Errorf("got %+v, want messages that reach the hosts without links", i)
		}
		if i := out.Document.Information; n.Way == "" && (i.Messages != int64(out.Result.Messages) || i.Offers != 0) {
			t.Errorf("got %+v, want the messages of the sessions and no offers", i)
		}
		text, err := json.Marshal(out.Document.Runs)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if figures(News{}) != figures(News{Way: BySessions}) {
		t.Error("the usual way, named, gives another run")
	}
	figures(News{Way: ByMST})
}

func TestInvalidNewsIsRefused(t *testing.T) {
	for want, n := range map[string]News{
		`information "pigeons": want sessions, random, mst, optimised or dht`: {Way: "pigeons"},
		"stale -1s: a time cannot be negative":                                {Stale: -time.Second},
		"information mst: there are 20000 machines":                           {Way: ByMST},
	} {
		if err := n.Check(20_000); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (News{Stale: time.Second}).Check(20_000); err != nil {
		t.Error(err)
	}
	s := small(t, 1)
	s.News.Way = "pigeons"
	if _, err := s.Run(t.Context()); err == nil {
		t.Error("a way that does not exist is simulated")
	}
}

// Hosts that forward nothing make the belief about capacity older, most of all on a tree. The jobs still end.
func TestSilentHostsMakeNewsOlder(t *testing.T) {
	age := func(way string, silent float64) float64 {
		s := small(t, 5)
		s.News = News{Way: way, Silent: silent}
		referee, err := report.NewReferee(&s.Load, report.Rules{Restart: s.Restart})
		if err != nil {
			t.Fatal(err)
		}
		s.Log = refereed{t, referee}
		out, err := s.Run(t.Context())
		if err != nil || referee.Open() != 0 {
			t.Fatalf("%d jobs have not ended: %v, want no error and 0", referee.Open(), err)
		}
		return out.Document.Information.AgeMean
	}
	if honest, silent := age(ByMST, 0), age(ByMST, 0.4); silent <= honest {
		t.Errorf("the belief is %v s old if some hosts forward nothing, want older than %v s", silent, honest)
	}
	age(ByRandom, 0.4)
}

// Ten thousand hosts take part in an overlay, in less than 2 GiB.
func TestOverlayOfTenThousandHostsFitsInMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	machines, err := load.ParseMachines("10000x8xH100-80GB,128cpu,1TiB")
	if err != nil {
		t.Fatal(err)
	}
	how, err := load.ParseSynthetic("test", "jobs: 40; rate: 2/s; durations: 10s")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := how.Jobs(machines, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := &Scenario{Seed: 1, Load: load.Load{Machines: machines, Jobs: jobs}, Schedulers: 4, News: News{Way: ByRandom}}
	out, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := out.Document.Information; out.Result.Ended != 40 || n.Reach99 == 0 || n.Reach99 > 30 {
		t.Errorf("%d jobs have ended, want 40; %+v, want 99 %% of the hosts reached within 30 s", out.Result.Ended, n)
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil || used.Maxrss > 2<<20 {
		t.Errorf("it took %d KiB: %v, want no error and at most %v", used.Maxrss, err, 2<<20)
	}
}
