package worker_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// An offer for a user whose tasks this host never runs is declined for good at once, whatever scheduler sends it, even
// one that does not know the rule.
func TestOffersForUsersThatAreNotServedAreDeclined(t *testing.T) {
	cfg := config(2)
	self := cfg.Profile.Peer
	for name, c := range map[string]struct {
		set  func(*worker.Config)
		from job.Peer
		user string
		why  string // empty: it is accepted
	}{
		"any":                      {func(*worker.Config) {}, amy, "ada", ""},
		"its own user":             {func(c *worker.Config) { c.Profile.OnlyUser = "ada" }, amy, "ada", ""},
		"another user":             {func(c *worker.Config) { c.Profile.OnlyUser = "bob" }, amy, "ada", "this node runs only tasks of bob"},
		"another user, from here":  {func(c *worker.Config) { c.Profile.OnlyUser = "bob" }, self, "ada", "this node runs only tasks of bob"},
		"no name":                  {func(c *worker.Config) { c.Profile.OnlyUser = "bob" }, amy, "", "this node runs only tasks of bob"},
		"of the system":            {func(c *worker.Config) { c.NotForOthers = map[string]string{"ada": "of the system"} }, amy, "ada", "of the system"},
		"of the system, from here": {func(c *worker.Config) { c.NotForOthers = map[string]string{"ada": "of the system"} }, self, "ada", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(2)
			c.set(&cfg)
			h := newHost(t, cfg)
			h.meet(c.from, 1)
			m := offer(1, attempt(1, 1), gpus(1))
			m.User, m.Wait = c.user, time.Minute
			h.says(c.from, m)
			if c.why == "" {
				one[contract.Commit](h, c.from)
				return
			}
			if d := one[contract.Decline](h, c.from); !d.Never || d.Reason.Word != job.ReasonNoMatch || d.Reason.Detail != c.why {
				t.Errorf("decline = %+v, want it for good with the reason of the case", d)
			}
		})
	}
}
