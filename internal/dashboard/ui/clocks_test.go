package ui

import (
	"slices"
	"testing"
)

// Times of a job are shown by the clock of the browser, however far the clock of its owner is ahead. Only listings have
// that difference.
func TestTimesAreByTheClockOfTheBrowser(t *testing.T) {
	tab := page(t, daemon{}, "/")
	got := eval[[]string](t, tab, `(async () => { `+modules+`
		const { listed, slim } = await load('joblist.js'), { here } = await load('format.js');
		const j = { id: 'a-off', submitted_at: '2026-01-01T01:00:00Z', started_at: '2026-01-01T01:00:05Z' }, other = { ...j, id: 'b-right' };
		const [first] = [{ ...j, clock_ahead: 3600 }].map(listed);
		return [first.submitted, first.started, slim({ ...j, id: 'c-off' }).submitted, listed(other).submitted, slim(other).started, String(first.ended),
			here(j.submitted_at, -60), here(j.submitted_at, 1e300), here('when', 60)];
	})()`)
	want := []string{
		"2026-01-01T00:00:00.000Z", "2026-01-01T00:00:05.000Z", "2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00Z", "2026-01-01T01:00:05Z", "undefined",
		"2026-01-01T01:01:00.000Z", "2026-01-01T01:00:00Z", "when",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
