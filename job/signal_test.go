package job

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWarningsAreParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Warning{
		"":            {},
		"USR1@120s":   {int(syscall.SIGUSR1), 2 * time.Minute},
		"SIGTERM@90s": {int(syscall.SIGTERM), 90 * time.Second},
		"usr2@1h30m":  {int(syscall.SIGUSR2), 90 * time.Minute},
		"12@5m":       {int(syscall.SIGUSR2), 5 * time.Minute},
		"2m":          {int(syscall.SIGUSR1), 2 * time.Minute},
	} {
		if got, err := ParseWarning(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"USR1", "USR1@", "USR1@120", "KILL@10s", "9@10s", "USR1@0s", "USR1@-5s", "@5s", "USR1@5s@6s", "STOP@1s"} {
		if got, err := ParseWarning(text); err == nil {
			t.Errorf("%q is accepted: %+v", text, got)
		}
	}
}

func TestSignalNeedsTimeLimit(t *testing.T) {
	t.Parallel()
	s := DefaultSpec()
	s.Command, s.Signal = []string{"true"}, "USR1@60s"
	for limit, want := range map[time.Duration]string{0: "give time_limit", time.Minute: "must be shorter than", 2 * time.Minute: ""} {
		s.TimeLimit = Duration(limit)
		if err := s.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("limit %s: %v, want %q", limit, err, want)
		}
	}
}
