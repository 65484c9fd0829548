package main

// Times as sbatch --begin takes them. They are in the time zone of this host.

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
)

// setBegin takes the value of --begin, as muster has it.
func setBegin(s *job.Spec, v string) error { return setBeginAt(s, v, false) }

// slurmBegin takes the value of --begin, as sbatch has it: with a bare number of seconds in now+60, and dates such as
// 12/31.
func slurmBegin(s *job.Spec, v string) error { return setBeginAt(s, v, true) }

func setBeginAt(s *job.Spec, v string, slurm bool) error {
	at, err := parseBegin(v, time.Now(), slurm)
	if err != nil {
		return err
	}
	at = at.Round(0)
	s.Begin = &at
	return nil
}

// dayForms are the forms of a time of day. One that is past today means tomorrow.
var dayForms = []string{"15:04", "15:04:05", "3:04PM", "3:04:05PM"}

// dayNames are times of day with a name.
var dayNames = map[string]int{"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}

// dateForms are the forms of a date. Those with an offset do not depend on the time zone of this host.
var dateForms = []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339}

// slurmDates are further forms of sbatch. One without a year that is past means the next year.
var slurmDates = []string{"01/02/06", "01.02.06", "010206", "01/02", "01.02", "0102", "01/02/06-15:04", "01/02/06-15:04:05", "01/02-15:04", "01/02-15:04:05"}

// parseBegin returns the time that a text means at the time now.
func parseBegin(text string, now time.Time, slurm bool) (time.Time, error) {
	word := strings.ToLower(strings.TrimSpace(text))
	year, month, day := now.Date()
	on := func(days int, t time.Time) time.Time {
		return time.Date(year, month, day+days, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
	}
	next := func(t time.Time) time.Time {
		if at := on(0, t); at.After(now) {
			return at
		}
		return on(1, t)
	}
	if hour, named := dayNames[word]; named {
		return next(time.Date(0, 1, 1, hour, 0, 0, 0, time.UTC)), nil
	}
	switch word {
	case "now", "today":
		return now, nil
	case "tomorrow":
		return on(1, time.Time{}), nil
	}
	if later, ok := strings.CutPrefix(word, "now+"); ok {
		d, err := parseDelay(later, slurm)
		return now.Add(d), err
	}
	upper := strings.ToUpper(strings.ReplaceAll(word, " ", ""))
	for _, form := range dayForms {
		if t, err := time.Parse(form, upper); err == nil {
			return next(t), nil
		}
	}
	forms := dateForms
	if slurm {
		forms = append(slurmDates, dateForms...)
	}
	for _, form := range forms {
		t, err := time.ParseInLocation(form, upper, now.Location())
		if err != nil {
			continue
		}
		if t.Year() == 0 { // the form has no year
			if t = t.AddDate(year, 0, 0); t.Before(now) {
				t = t.AddDate(1, 0, 0)
			}
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%.40q: want a time such as 16:00, tomorrow, now+1h, 2026-12-01 or 2026-12-01T08:00", text)
}

// slurmUnits are the units of sbatch that job.ParseDuration does not know. Each has a plural.
var slurmUnits = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// parseDelay parses a duration, with the units of sbatch as well. Only sbatch has numbers of seconds without a unit.
func parseDelay(text string, slurm bool) (time.Duration, error) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit, known := slurmUnits[strings.TrimSuffix(strings.TrimSpace(text[len(digits):]), "s")]
	if digits == text && slurm {
		unit, known = time.Second, true
	}
	if n, err := strconv.ParseUint(digits, 10, 31); err == nil && known {
		text = strconv.FormatInt(int64(n)*int64(unit/time.Second), 10) + "s"
	}
	d, err := job.ParseDuration(text)
	return d.D(), err
}

// sinceFlag returns the flag --since of a verb that shows only recent things.
func sinceFlag(only string) *cli.StringFlag {
	return &cli.StringFlag{Name: "since", Usage: only + " since `T`: so long ago, such as 2h, or a time such as 08:00, 2026-12-01 or 2026-12-01T08:00"}
}

// onlyMe returns an error if --me is given together with --user.
func onlyMe(c *cli.Context) error {
	if c.Bool("me") && c.IsSet("user") {
		return usagef("--me: not with --user")
	}
	return nil
}

// sinceOf returns the time that --since means: a duration before now, or a time in the past. The zero time is no limit.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := job.ParseDuration(text); err == nil {
		return now.Add(-d.D()), nil
	}
	at, err := parseBegin(text, now, false)
	switch {
	case err != nil:
		return at, fmt.Errorf("%.40q: want a duration such as 2h, or a time such as 08:00, 2026-12-01 or 2026-12-01T08:00", text)
	case at.After(now):
		at = at.AddDate(0, 0, -1) // --begin takes a time of day that has passed for tomorrow
	}
	return at, nil
}
