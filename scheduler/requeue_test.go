package scheduler

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// If the rows are lost once the record is in the journal, the job stays archived and the record has no effect.
func TestCommittedRequeueWithoutRowsHasNoEffect(t *testing.T) {
	for name, damage := range map[string]func(s *story){
		"lost":      func(s *story) { s.do("damage a all") },
		"damaged":   func(s *story) { s.do("damage a header") },
		"of b":      func(s *story) { s.rows[s.id("a")] = s.rows[s.id("b")] },
		"not final": func(s *story) { s.rows[s.id("a")] = s.rows[s.id("c")] },
	} {
		s := newStory(t, 0)
		for _, line := range []string{"lead", "worker n1 cpus=8", "submit a", "finish n1 a", "submit b", "finish n1 b", "submit c hold=1", "wait 1s"} {
			s.do(line)
		}
		damage(s)
		s.out.Reset()
		s.do("requeue a")
		for _, want := range []string{"told: rows of a: ", "requeue a: scheduler: conflict: job a cannot run again, because its rows on disk are missing or damaged; submit it again"} {
			if !strings.Contains(s.out.String(), want) {
				t.Errorf("%s: %s\nwant %q", name, s.out.String(), want)
			}
		}
		x, there := s.core.View().Find(s.id("a"))
		if !there || x.Job != nil || len(s.core.entries.byID) != 1 {
			t.Errorf("%s: %+v, %d jobs are in memory, want an archived job, and 1 job in memory", name, x, len(s.core.entries.byID))
		}
		for _, line := range []string{"submit d", "finish n1 d"} { // everything else goes on
			s.do(line)
		}
		if x, _ := s.core.View().Find(s.id("d")); s.rows[x.ID] == nil {
			t.Errorf("%s: no job runs after that", name)
		}
	}
}

// Of a purge and a requeue the first record counts, in one entry and in two.
func TestFirstOfPurgeAndRequeueCounts(t *testing.T) {
	for _, keep := range []int{0, 10} {
		for _, apart := range []bool{false, true} {
			for _, purged := range []bool{false, true} {
				s := newStory(t, keep)
				for _, line := range []string{"lead", "worker n1 cpus=8", "submit a", "finish n1 a", "wait 1s", "journal slow"} {
					s.do(line)
				}
				id := s.id("a")
				records := []job.Record{job.RequeueRecord{Job: id}, job.PurgeRecord{Job: id}}
				if purged {
					slices.Reverse(records)
				}
				s.core.history.purging[id.Drawn()] = true
				if apart {
					s.deliver(job.Committed{Records: records[:1]})
					records = records[1:]
				}
				s.deliver(job.Committed{Records: records})
				if _, there := s.core.View().Find(id); there == purged {
					t.Errorf("purged first %v, apart %v, in memory %d: the job is kept: %v, want it purged only if the purge came first", purged, apart, keep, there)
				}
				if len(s.core.history.purging) != 0 || len(s.core.history.ended) != 0 {
					t.Errorf("purged first %v: purging %v, ended %v, want none and none", purged, s.core.history.purging, s.core.history.ended)
				}
			}
		}
	}
}
