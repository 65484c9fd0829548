package job

import (
	"strings"
	"testing"
)

func TestInputIsChecked(t *testing.T) {
	base := func(change func(*Spec)) Spec {
		s := DefaultSpec()
		s.Command, s.Requeue = []string{"cat"}, false
		change(&s)
		return s
	}
	for _, c := range []struct {
		name   string
		spec   Spec
		refuse string // a part of the error; empty: none
	}{
		{"stdin", base(func(s *Spec) { s.Stdin = true }), ""},
		{"tty", base(func(s *Spec) { s.TTY = "24x80" }), ""},
		{"stdin of an array", base(func(s *Spec) { s.Stdin, s.Array = true, "0-3" }), ""},
		{"tty of an array", base(func(s *Spec) { s.TTY, s.Array = "24x80", "0-3" }), "one task"},
		{"it runs again", base(func(s *Spec) { s.Stdin, s.Requeue = true, true }), "set requeue to false"},
		{"retries", base(func(s *Spec) { s.TTY, s.Retries = "24x80", 1 }), "retries"},
		{"checkpoints", base(func(s *Spec) { s.Stdin, s.CheckpointExitCode = true, 85 }), "checkpoint_exit_code"},
		{"no size", base(func(s *Spec) { s.TTY = "yes" }), "ROWSxCOLS"},
		{"a size of 0", base(func(s *Spec) { s.TTY = "0x80" }), "ROWSxCOLS"},
		{"a size beyond 16 bits", base(func(s *Spec) { s.TTY = "24x65536" }), "ROWSxCOLS"},
		{"no input", base(func(s *Spec) { s.Requeue, s.Retries = true, 3 }), ""},
	} {
		err := c.spec.Validate()
		if (err == nil) != (c.refuse == "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refuse)
		}
	}
	if got, err := ParseTerminal(Terminal{Rows: 31, Cols: 97}.String()); err != nil || got != (Terminal{31, 97}) {
		t.Errorf("%v, %v, want no error and %v", got, err, (Terminal{31, 97}))
	}
}
