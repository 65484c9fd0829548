package daemon

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/resources"
)

func limitsOf(t *testing.T, settings map[string]string) resources.Limits {
	t.Helper()
	l, err := resources.ParseLimits(settings)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A job without a time limit gets the default, or the longest that its user may have if that is shorter.
func TestJobsWithoutATimeLimitGetTheDefault(t *testing.T) {
	for _, c := range []struct {
		usual    job.Duration
		settings map[string]string
		want     map[string]job.Duration
	}{
		{0, nil, map[string]job.Duration{"ada": 0}},
		{hour, nil, map[string]job.Duration{"ada": hour}},
		{0, map[string]string{"per_user.max_time": "2h", "users.bob.max_time": "30m"}, map[string]job.Duration{"ada": 2 * hour, "bob": hour / 2}},
		{hour, map[string]string{"per_user.max_time": "2h", "users.bob.max_time": "30m"}, map[string]job.Duration{"ada": hour, "bob": hour / 2}},
		{hour, map[string]string{"per_user.cluster_gpus": "4"}, map[string]job.Duration{"ada": hour}},
	} {
		l := newTimeLimits(Config{DefaultTime: c.usual}, limitsOf(t, c.settings))
		for user, want := range c.want {
			if got := l.of(user); got != want {
				t.Errorf("%s, %v: got %s for %s, want %s", c.usual, c.settings, got, user, want)
			}
		}
	}
}

// The daemon that accepts a job checks the limits of whole jobs, and nothing if there are none.
func TestLimitsOfWholeJobsAreChecked(t *testing.T) {
	if l := jobLimits(limitsOf(t, map[string]string{"per_user.gpus": "4", "users.ada.priority": "80", "per_user.pending_jobs": "7"})); l != nil {
		t.Errorf("without limits of whole jobs: got %+v, want nil", l)
	}
	l := jobLimits(limitsOf(t, map[string]string{"per_user.gpus": "4", "per_user.cluster_gpus": "8", "users.ada.max_time": "1h", "users.bob.gpus": "1"}))
	want := &contract.UserLimits{PerUser: contract.Limit{contract.LimitClusterGPUs: 8}, Users: map[string]contract.Limit{"ada": {contract.LimitTime: 3600}}}
	if !l.Equal(want) {
		t.Errorf("got %+v, want %+v", l, want)
	}
}

// A default above the longest time limit is an error, because jobs without a limit would get more than users may have.
func TestDefaultTimeAboveTheLongestIsRefused(t *testing.T) {
	c := DefaultConfig()
	c.DefaultTime, c.Limits = 3*hour, map[string]string{"per_user.max_time": "2h", "users.ada.max_time": "1h"}
	if err := c.checkUsers(); err == nil || !strings.Contains(err.Error(), "default-time, limits: a default of 3h is above per_user.max_time=2h") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line with both settings", err)
	}
	c.DefaultTime = 2 * hour
	if err := c.checkUsers(); err != nil {
		t.Error(err)
	}
}
