package main

// The flags --since and --me, and the time that --since means.

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
)

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
