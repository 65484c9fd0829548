package api

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/job"
)

// A word that is the name of one job and the beginning of other jobs' ids is refused, because a name of one letter
// would otherwise cancel the job of another user. A single job that fits both ways is accepted.
func TestWordThatFitsANameAndAnotherIDIsRefused(t *testing.T) {
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
			t.Errorf("Resolve(%s) = %v, want ErrBad with both jobs", word, err)
		}
		for _, id := range []string{string(begins.ID)[:9], string(begins.ID)} {
			if jobs, _, err := amy.client.Resolve(t.Context(), id); err != nil || len(jobs) != 1 || jobs[0].ID != begins.ID {
				t.Errorf("Resolve(%s) = %v, %v, want %s", id, jobs, err, begins.ID)
			}
		}
		// The only job with this beginning of an id is also the only one of that name.
		own := ben.newJob(0x2_8000_0000_0000)
		own.Spec.Name = string(ben.put(own).ID)[:7]
		own = ben.put(own)
		if jobs, _, err := amy.client.Resolve(t.Context(), own.Spec.Name); err != nil || len(jobs) != 1 || jobs[0].ID != own.ID {
			t.Errorf("Resolve(%s) = %v, %v, want %s", own.Spec.Name, jobs, err, own.ID)
		}
	})
}

// Jobs of another user whose names and ids fit a word do not change what the word means to the user: the user's own
// jobs go first.
func TestOwnJobsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		own := amy.newJob(0xabcdef)
		own.Spec.Name = "train"
		own = amy.put(own)
		word := string(own.ID)[:2]
		foreign := func(n uint64, name string) job.Job {
			j := ben.newJob(n)
			j.User, j.Spec.Name = "mallory", name
			return ben.put(j)
		}
		foreign(0x3_8000_0000_0000, "train")            // the same name
		foreign(0x2_8000_0000_0000, word)               // a name that begins the id
		foreign(0x1_8000_0000_0000, string(own.ID))     // a name that equals the id
		begins := foreign(0xabcdee, "other")            // an id with the same beginning
		foreign(0x4_8000_0000_0000, string(own.ID)[:9]) // a name that is a longer beginning of the id
		if !strings.HasPrefix(string(begins.ID), word) {
			t.Fatalf("%s does not begin with %s", begins.ID, word)
		}
		for _, text := range []string{"train", "train.0", word, word + ".0", string(own.ID)[:9], string(own.ID)} {
			for _, d := range c.daemons {
				if jobs, _, err := d.client.Resolve(t.Context(), text); err != nil || len(jobs) != 1 || jobs[0].ID != own.ID {
					t.Errorf("at %s Resolve(%s) = %v, %v, want %s", d.name, text, jobs, err, own.ID)
				}
			}
		}
		if jobs, _, err := amy.client.Resolve(t.Context(), "other"); err != nil || jobs[0].ID != begins.ID {
			t.Errorf("another user's job by its name: got %v, %v, want %s", jobs, err, begins.ID)
		}
		second := amy.newJob(0x5_8000_0000_0000)
		second.Spec.Name = "train"
		amy.put(second)
		if _, _, err := amy.client.Resolve(t.Context(), "train"); !errors.Is(err, ErrBad) {
			t.Errorf("two own jobs of the name: got %v, want ErrBad", err)
		}
	})
}
