package main

// The size of the terminal of muster run -it and exec -it.

import (
	"testing"

	"github.com/creack/pty"

	"github.com/musterhq/muster/job"
)

// A terminal that reports no size counts as 24x80, so that programs can draw.
func TestUnknownTerminalSizeIs24By80(t *testing.T) {
	near, far, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = near.Close(), far.Close() }()
	for _, c := range []struct {
		set  pty.Winsize
		want job.Terminal
	}{
		{pty.Winsize{}, job.Terminal{Rows: 24, Cols: 80}},
		{pty.Winsize{Rows: 5}, job.Terminal{Rows: 24, Cols: 80}},
		{pty.Winsize{Rows: 31, Cols: 97}, job.Terminal{Rows: 31, Cols: 97}},
	} {
		if err := pty.Setsize(near, &c.set); err != nil {
			t.Fatal(err)
		}
		got, err := inputSize(int(far.Fd())) //nolint:gosec // a descriptor is small
		if err != nil || got != c.want {
			t.Errorf("inputSize with %dx%d = %s, %v; want %s", c.set.Rows, c.set.Cols, got, err, c.want)
		}
	}
	if _, err := inputSize(-1); err == nil {
		t.Error("inputSize of no terminal returns no error")
	}
}
