package main

// Times and amounts as people read them: in the time zone of the reader, and with units.

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// clock writes a time with its zone.
func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// minute writes a time without its seconds.
func minute(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04 MST")
}

// latest says when a waiting job should start at the latest.
func latest(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return clock(t) + " or before"
}

// notBefore returns the time of a job's --begin if that is in the future; otherwise nil.
func notBefore(j api.Job) *time.Time {
	if j.BeginAt == nil || j.StartedAt != nil || j.Ended() || !j.BeginAt.After(nowOf(j)) {
		return nil
	}
	return j.BeginAt
}

// expectedStart returns when a waiting job should start: the time of its --begin, which is the earliest, or else the
// estimate of the latest start; nil if neither is known.
func expectedStart(j api.Job) *time.Time { return cmp.Or(notBefore(j), j.Estimated) }

// startCell writes expectedStart for listings.
func startCell(j api.Job) string {
	if t := notBefore(j); t != nil {
		return "from " + minute(t)
	}
	return minute(j.Estimated)
}

// utcTime is a time as daemons write it in sentences: they do not know the reader's time zone.
var utcTime = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// localTimes writes the times in a sentence of a daemon as clock does.
func localTimes(s string) string {
	if !strings.Contains(s, "Z") {
		return s
	}
	return utcTime.ReplaceAllStringFunc(s, func(text string) string {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return text
		}
		return clock(&t)
	})
}

// nowOf returns the time by the clock of the daemon that accepted the job. The job's times are by that clock.
func nowOf(j api.Job) time.Time { return time.Now().Add(j.Ahead()) }

// elapsed returns how long something has lasted by one clock, in whole seconds from one minute on. If it still lasts,
// it is measured up to now, by the same clock.
func elapsed(from, to *time.Time, now time.Time) string {
	if from == nil {
		return "-"
	}
	end := now
	if to != nil {
		end = *to
	}
	d := end.Sub(*from)
	if d < 0 { // the clock has changed
		return "-"
	}
	if d >= time.Minute {
		return job.Duration(d.Round(time.Second)).String()
	}
	return d.Round(time.Millisecond).String()
}

// seconds writes a number of seconds as a duration.
func seconds(n float64) string { return job.Duration(n * float64(time.Second)).String() }

// size writes a number of bytes; 0 means not known, or not requested.
func size(n int64) string {
	if n == 0 {
		return "-"
	}
	return job.Size(n).String()
}
