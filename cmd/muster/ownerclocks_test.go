package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// How long a job runs, and whether it is recent, is a difference of two readings of its owner's clock, whatever that
// clock says.
func TestTimesOfAJobAreByItsOwnersClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		at := func(ago time.Duration) string { return time.Now().Add(ahead - ago).UTC().Format(time.RFC3339) }
		doc := func(id, state, submitted, started string) string {
			task := fmt.Sprintf(`{"task":0,"state":%q,"reason":"","attempt":1,"node":"n1","started_at":%s,"attempts":[{"attempt":1,"node":"n1","state":%[1]q,"started_at":%[2]s}]}`, state, started)
			return fmt.Sprintf(`{"schema":"muster.job/v1","id":%q,"name":"train","user":"amy","state":%q,"submitted_at":%q,"started_at":%s,"clock_ahead":%g,"task_count":1,"tasks":[%s],"spec":{"command":["true"]}}`,
				id, state, submitted, started, ahead.Seconds(), task)
		}
		young, old := doc(idA, "RUNNING", at(20*time.Minute), `"`+at(10*time.Minute)+`"`), doc(idB, "PENDING", at(90*time.Minute), "null")
		f := newFake(t, map[string]http.HandlerFunc{
			"GET /v1/jobs":                           answer(http.StatusOK, `{"schema":"muster.jobs/v1","items":[`+old+","+young+`]}`),
			"GET /v1/jobs/" + idA:                    answer(http.StatusOK, young),
			"GET /v1/jobs/" + idA + "/tasks/0/usage": problem(http.StatusNotFound, "not-found", `"detail": "not measured"`),
		})
		for line, want := range map[string]string{
			"jobs -q --since 2h": idB + "\n" + idA,
			"jobs -o id,time":    idA + "  10m",
			"show " + idA:        "10m",
		} {
			if r := f.muster(strings.Fields(line)...); r.code != 0 || !strings.Contains(r.stdout, want) || strings.Contains(r.stdout, "-59m") || strings.Contains(r.stdout, "1h") {
				t.Errorf("%s, %s ahead: exit %d, %q, %q, want %q", line, ahead, r.code, r.stdout, r.err, want)
			}
		}
		if r := f.muster("jobs", "-q", "--since", "1h"); r.stdout != idA+"\n" {
			t.Errorf("%s ahead: got %q, want the job", ahead, r.stdout)
		}
	}
}

// An event of a job does not have its owner's clock, which is known from the listing.
func TestEventsUseTheClockOffsetOfTheListing(t *testing.T) {
	o := &ownerClocks{}
	if j := o.told(api.Job{ID: idA}); j.ClockAhead != 0 {
		t.Errorf("before any listing: got %g s ahead, want 0", j.ClockAhead)
	}
	o.learn([]api.Job{{ID: job.NewID(1, 1), ClockAhead: -60}, {ID: job.NewID(2, 1)}})
	for group, want := range map[job.Group]float64{1: -60, 2: 0, 3: 0} {
		if j := o.told(api.Job{ID: job.NewID(group, 7)}); j.ClockAhead != want {
			t.Errorf("group %d: got %g s ahead, want %g", group, j.ClockAhead, want)
		}
	}
}
