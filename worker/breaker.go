package worker

// Breaker: a host, or a GPU, that fails what it is given takes nothing for a
// while, so that it does not swallow all that waits.

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

const (
	// fastFailure is how soon a task fails that may have met a broken host or
	// GPU: the import of a large framework and its first look at the GPU.
	fastFailure = 30 * time.Second
	// breakerJobs is how many different jobs have to fail one after the other,
	// none succeeding between, and breakerPerUser how many of one user's count:
	// so nobody's own bad commands take a host from the others.
	breakerJobs    = 5
	breakerPerUser = 3
	// breakerOurs is how many jobs the host may fail to start by its own fault:
	// whose jobs they are says nothing then.
	breakerOurs = 3
	// breakerFirst is the pause after the first time; it doubles with each time
	// until a task succeeds, up to breakerMost.
	breakerFirst = 30 * time.Second
	breakerMost  = 30 * time.Minute
	// exitOurs is the exit code of a task that the host failed to start.
	exitOurs = job.ExitMuster
)

// failure is one job that failed fast.
type failure struct {
	job  job.ID
	user string
	ours bool // the host could not start it
	on   []string
}

// breaker is what speaks against a host or a GPU since a task last succeeded.
type breaker struct {
	failures []failure
	trips    int
}

// note takes a failure, and says why the breaker trips, if it does.
func (b *breaker) note(f failure) (why string) {
	ours, ofUser := 0, 0
	for _, other := range b.failures {
		if other.job == f.job {
			return ""
		}
		if other.ours {
			ours++
		}
		if !other.ours && other.user == f.user {
			ofUser++
		}
	}
	if !f.ours && ofUser >= breakerPerUser {
		return ""
	}
	b.failures = append(b.failures, f)
	if f.ours {
		ours++
	}
	switch {
	case ours >= breakerOurs:
		return fmt.Sprintf("it could not start %d different jobs in a row", ours)
	case len(b.failures) >= breakerJobs:
		return fmt.Sprintf("%d different jobs failed in a row, each within %s", len(b.failures), fastFailure)
	}
	return ""
}

// trip begins a pause.
func (b *breaker) trip() time.Duration {
	b.failures = nil
	b.trips++
	return pauseAfter(b.trips - 1)
}

// pauseAfter is the pause that comes after so many others.
func pauseAfter(trips int) time.Duration {
	return min(breakerFirst<<min(max(trips, 0), 16), breakerMost)
}

// judge hears how an attempt ended. What is blamed on a GPU is not blamed on
// the host.
func (c *Core) judge(now Moment, a *attempt, exit job.Exit) {
	devices := a.rec.Devices
	if exit.State == job.Succeeded {
		c.forgive(&c.breaker)
		for _, uuid := range devices {
			if d := c.devices[uuid]; d != nil {
				c.forgive(&d.breaker)
			}
		}
		return
	}
	if exit.State != job.Failed || exit.Started && !a.fast(now) {
		return
	}
	f := failure{job: a.rec.Attempt.Job, user: a.rec.User, ours: !exit.Started && exit.Code == exitOurs, on: devices}
	blamed := false
	for _, uuid := range devices {
		d := c.devices[uuid]
		if d == nil || f.ours {
			continue
		}
		if why := d.breaker.note(f); why != "" {
			c.breakDevice(now, d, why)
			blamed = true
		}
	}
	if blamed {
		return
	}
	if why := c.breaker.note(f); why != "" {
		c.breakHost(now, why)
	}
}

// fast says whether an attempt that ends now began a moment ago. About one that
// began before the daemon did nothing is known, and nothing is held against
// anybody.
func (a *attempt) fast(now Moment) bool { return a.began != 0 && now.Boot.Sub(a.began) < fastFailure }

func (c *Core) breakDevice(now Moment, d *device, why string) {
	c.breaker.failures = slices.DeleteFunc(c.breaker.failures, func(f failure) bool { return slices.Contains(f.on, d.UUID) })
	pause := d.breaker.trip()
	c.pauseDevice(now, d, lease.Clip(why+"; tried again "+when(now, pause)), pause)
}

func (c *Core) pauseDevice(now Moment, d *device, why string, pause time.Duration) {
	d.brokenUntil = now.Boot.Add(pause)
	c.setAside(d, troubleBreaker, why)
	c.timers.set(d.brokenUntil, func(Moment) {
		if c.devices[d.UUID] == d {
			c.clear(d, troubleBreaker)
		}
	})
}

// forgive forgets what speaks against a host or a GPU.
func (c *Core) forgive(b *breaker) {
	c.asideNew = c.asideNew || b.trips > 0
	*b = breaker{}
}

func (c *Core) breakHost(now Moment, why string) {
	pause := c.breaker.trip()
	c.pauseHost(now, lease.Clip("set aside: "+why+"; tried again "+when(now, pause)), pause)
}

func (c *Core) pauseHost(now Moment, why string, pause time.Duration) {
	until := now.Boot.Add(pause)
	c.broken, c.brokenUntil = why, until
	c.say(slog.LevelError, "host set aside", slog.String("reason", why), slog.Duration("pause", pause))
	c.look, c.changed, c.asideNew = true, true, true
	c.timers.set(until, func(Moment) {
		if c.brokenUntil == until {
			c.mend()
		}
	})
}

// mend ends the host's pause.
func (c *Core) mend() {
	if c.broken == "" {
		return
	}
	c.broken, c.brokenUntil = "", 0
	c.say(slog.LevelInfo, "host takes tasks again")
	c.look, c.changed, c.asideNew = true, true, true
}

// when is a moment for people on other hosts, too.
func when(now Moment, after time.Duration) string {
	return "at " + now.Wall.Add(after).UTC().Format(time.RFC3339)
}
