package spawn

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHungLookupsOfAUserAreBounded has a user start far more containers than may hang, with files that do not answer.
// They use a bounded number of goroutines, and so of threads. The next start is refused at once. Another user's start
// is not affected. Once the files answer, the user's starts go on.
func TestHungLookupsOfAUserAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Spawner{answer: time.Minute, log: slog.New(slog.DiscardHandler)}
		ended, late := errors.New("ended"), errors.New("late")
		answers := make(chan struct{})
		asked, dropped := 0, 0
		hang := func() (int, error) {
			asked++ // one at a time: each waits below
			<-answers
			return 1, nil
		}
		try := func(ctx context.Context, user string, f func() (int, error)) (int, error) {
			return look(ctx, s, user, f, func(int) { dropped++ }, ended, late)
		}
		const starts = 10 * maxLooks
		results := make(chan error, starts)
		for range starts {
			go func() {
				_, err := try(t.Context(), "amy", hang)
				results <- err
			}()
			synctest.Wait()
		}
		if asked != maxLooks {
			t.Errorf("%d files are looked at at the same time, want %d", asked, maxLooks)
		}
		if n, err := try(t.Context(), "ben", func() (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("another user: %d, %v, want 7 and no error", n, err)
		}
		given := 0
		for range starts {
			if err := <-results; errors.Is(err, late) {
				given++
			} else if err == nil {
				t.Error("a start went on without its files")
			}
		}
		if given != maxLooks {
			t.Errorf("%d looks were given up, want %d", given, maxLooks)
		}
		began := time.Now()
		if _, err := try(t.Context(), "amy", hang); err == nil || !strings.Contains(err.Error(), "8 starts of user amy hang") || time.Since(began) != 0 {
			t.Errorf(`one more start: %v after %s, want an error, "8 starts of user amy hang" in it and 0`, err, time.Since(began))
		}
		close(answers)
		synctest.Wait()
		if dropped != maxLooks {
			t.Errorf("%d late answers were dropped, want %d", dropped, maxLooks)
		}
		if n, err := try(t.Context(), "amy", func() (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("when the files answer: %d, %v, want 7 and no error", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := try(ctx, "amy", func() (int, error) { time.Sleep(time.Second); return 1, nil }); err == nil || errors.Is(err, late) {
			t.Errorf("a cancelled start: %v, want an error other than the time-out", err)
		}
		time.Sleep(2 * time.Second)
		if len(s.looks.user) != 0 {
			t.Errorf("%d users are remembered, want none", len(s.looks.user))
		}
	})
}
