package node

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A full disk is told once, and once more when there is room again, whatever the figures are meanwhile.
func TestRoomIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := ""
		var told []string
		w := &roomWatch{why: func() string { return why }, tell: func(why string) { told = append(told, why) }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.run(ctx) }()
		for _, now := range []string{"", "12 MiB free", "11 MiB free", "", "3 MiB free"} {
			synctest.Wait()
			why = now
			time.Sleep(3 * roomEvery)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := []string{"12 MiB free", "", "3 MiB free"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
