package job

// The signal that a task can ask for before its time limit.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Warning is a signal that a task asked to get before its time limit, so that it can save its work. Signal 0 means
// none.
type Warning struct {
	Signal int
	Before time.Duration
}

// warning is one signal that a task can ask for.
type warning struct {
	name   string
	number syscall.Signal
}

// warnings are the signals that a program can handle and that do not affect job control of the kernel.
var warnings = []warning{
	{"USR1", syscall.SIGUSR1},
	{"USR2", syscall.SIGUSR2},
	{"TERM", syscall.SIGTERM},
	{"INT", syscall.SIGINT},
	{"HUP", syscall.SIGHUP},
	{"QUIT", syscall.SIGQUIT},
	{"ALRM", syscall.SIGALRM},
	{"CONT", syscall.SIGCONT},
	{"WINCH", syscall.SIGWINCH},
	{"URG", syscall.SIGURG},
	{"XCPU", syscall.SIGXCPU},
}

// ParseWarning parses [SIGNAL@]D, such as USR1@120s. SIGNAL is a name, with or without SIG, or a number; the default
// is USR1.
func ParseWarning(text string) (Warning, error) {
	if text == "" {
		return Warning{}, nil
	}
	name, before, both := strings.Cut(text, "@")
	if !both {
		name, before = warnings[0].name, text
	}
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	i := slices.IndexFunc(warnings, func(w warning) bool { return w.name == name || strconv.Itoa(int(w.number)) == name })
	if i < 0 {
		return Warning{}, fmt.Errorf("signal %.60q: want SIGNAL@D such as USR1@120s, with one of %s", text, warningNames())
	}
	var d Duration
	if err := d.UnmarshalText([]byte(before)); err != nil {
		return Warning{}, fmt.Errorf("signal %.60q: %w", text, err)
	}
	if d <= 0 {
		return Warning{}, fmt.Errorf("signal %.60q: the time before the limit must be above 0s", text)
	}
	return Warning{Signal: int(warnings[i].number), Before: d.D()}, nil
}

func warningNames() string {
	names := make([]string, len(warnings))
	for i, w := range warnings {
		names[i] = w.name
	}
	return strings.Join(names, " ")
}

// checkSignal requires a time limit that is longer than the warning time.
func checkSignal(s Spec) error {
	w, err := ParseWarning(s.Signal)
	switch {
	case err != nil:
		return err
	case w.Signal == 0:
		return nil
	case s.TimeLimit == 0:
		return fmt.Errorf("signal %.60q: needs a time limit; give time_limit", s.Signal)
	case w.Before >= s.TimeLimit.D():
		return fmt.Errorf("signal %.60q: must be shorter than the time limit of %s", s.Signal, s.TimeLimit)
	}
	return nil
}

// Warning returns the signal before the time limit. The spec must be valid.
func (s Spec) Warning() Warning {
	w, err := ParseWarning(s.Signal)
	if err != nil {
		return Warning{}
	}
	return w
}
