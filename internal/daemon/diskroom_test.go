package daemon

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A full disk is reported once, and once more when there is space again, whatever the figures are in between. A missing
// data directory is reported even if the disk was full before, and the log says what to do.
func TestFullDiskIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, why := noTrouble, ""
		var told []string
		var log strings.Builder
		w := &roomWatch{
			look: func() (trouble, string, string) { return is, why, "stop the daemon" }, tell: func(why string) { told = append(told, why) },
			log: slog.New(slog.NewTextHandler(&log, nil)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.run(ctx) }()
		for _, now := range []struct {
			is  trouble
			why string
		}{{}, {noRoom, "12 MiB free"}, {noRoom, "11 MiB free"}, {}, {noRoom, "3 MiB free"}, {filesGone, "gone"}, {filesGone, "gone"}, {}} {
			synctest.Wait()
			is, why = now.is, now.why
			time.Sleep(3 * roomEvery)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := []string{"12 MiB free", "", "3 MiB free", "gone", ""}; !slices.Equal(told, want) {
			t.Errorf("reported %q, want %q", told, want)
		}
		if text := log.String(); strings.Count(text, "accepts no more tasks\" reason=gone") != 1 || !strings.Contains(text, "stop the daemon") || strings.Count(text, "there again") != 1 {
			t.Errorf("the log: got\n%s\nwant one line about each change, with what to do", text)
		}
	})
}
