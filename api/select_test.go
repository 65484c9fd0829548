package api

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// A word that is the name of a job and the beginning of other jobs' ids means none of them: a name of one letter would
// otherwise cancel the job of somebody else. The same job by both ways is no doubt.
func TestNamesWithWhichIDsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		begins := amy.put(amy.newJob(0xabcdef))
		word := string(begins.ID)[:2]
		j := ben.newJob(0x3_8000_0000_0000)
		j.Spec.Name = word
		called := ben.put(j)
		if strings.HasPrefix(string(called.ID), word) {
			t.Fatalf("%s begins with %s, too", called.ID, word)
		}
		_, _, err := amy.client.Resolve(t.Context(), word)
		if !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), "is the name of "+string(called.ID)+", and the id of "+string(begins.ID)+" begins so") {
			t.Errorf("Resolve(%s) = %v", word, err)
		}
		for _, id := range []string{string(begins.ID)[:9], string(begins.ID)} {
			if jobs, _, err := amy.client.Resolve(t.Context(), id); err != nil || len(jobs) != 1 || jobs[0].ID != begins.ID {
				t.Errorf("Resolve(%s) = %v, %v", id, jobs, err)
			}
		}
		// The job whose id begins so is the only one of that name.
		own := ben.newJob(0x2_8000_0000_0000)
		own.Spec.Name = string(ben.put(own).ID)[:7]
		own = ben.put(own)
		if jobs, _, err := amy.client.Resolve(t.Context(), own.Spec.Name); err != nil || len(jobs) != 1 || jobs[0].ID != own.ID {
			t.Errorf("Resolve(%s) = %v, %v", own.Spec.Name, jobs, err)
		}
	})
}
