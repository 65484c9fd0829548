package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestBeginIsParsedAsATime(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	now := time.Date(2026, 10, 24, 15, 30, 20, 5, zone) // the clocks are set back during the next night
	for _, c := range []struct{ text, want string }{
		{"now", "2026-10-24T15:30:20+02:00"},
		{"today", "2026-10-24T15:30:20+02:00"},
		{"now+90m", "2026-10-24T17:00:20+02:00"},
		{"NOW+1h30m", "2026-10-24T17:00:20+02:00"},
		{"now+2hours", "2026-10-24T17:30:20+02:00"},
		{"now+1day", "2026-10-25T14:30:20+01:00"}, // 24 hours
		{"now+1week", "2026-10-31T14:30:20+01:00"},
		{"now+2d", "2026-10-26T14:30:20+01:00"},
		{"16:00", "2026-10-24T16:00:00+02:00"},
		{"15:30:21", "2026-10-24T15:30:21+02:00"},
		{"15:30", "2026-10-25T15:30:00+01:00"}, // this time has passed today
		{"04:30pm", "2026-10-24T16:30:00+02:00"},
		{"4:30 PM", "2026-10-24T16:30:00+02:00"},
		{"1:00AM", "2026-10-25T01:00:00+02:00"},
		{"tomorrow", "2026-10-25T00:00:00+02:00"},
		{"midnight", "2026-10-25T00:00:00+02:00"},
		{"noon", "2026-10-25T12:00:00+01:00"},
		{"teatime", "2026-10-24T16:00:00+02:00"},
		{"2026-12-01", "2026-12-01T00:00:00+01:00"},
		{"2026-12-01T08:00", "2026-12-01T08:00:00+01:00"},
		{"2026-12-01t08:00:30", "2026-12-01T08:00:30+01:00"},
		{"2026-12-01T08:00:30Z", "2026-12-01T08:00:30Z"},
		{"2026-12-01T08:00:30-05:00", "2026-12-01T08:00:30-05:00"},
		{"2020-01-01", "2020-01-01T00:00:00+01:00"}, // this time has passed: the job begins at once

		{"slurm now+60", "2026-10-24T15:31:20+02:00"},
		{"slurm now+60seconds", "2026-10-24T15:31:20+02:00"},
		{"slurm now+5minute", "2026-10-24T15:35:20+02:00"},
		{"slurm 12/31", "2026-12-31T00:00:00+01:00"},
		{"slurm 01/20", "2027-01-20T00:00:00+01:00"},
		{"slurm 0120", "2027-01-20T00:00:00+01:00"},
		{"slurm 01.20.27", "2027-01-20T00:00:00+01:00"},
		{"slurm 012027", "2027-01-20T00:00:00+01:00"},
		{"slurm 12/31/26-08:15", "2026-12-31T08:15:00+01:00"},
		{"slurm 16:00", "2026-10-24T16:00:00+02:00"},
	} {
		text, slurm := strings.CutPrefix(c.text, "slurm ")
		at, err := parseBegin(text, now, slurm)
		if err != nil || at.Format(time.RFC3339) != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.text, at.Format(time.RFC3339), err, c.want)
		}
	}
	for text, want := range map[string]string{
		"":                 "want a time such as 16:00",
		"soon":             "want a time such as",
		"25:00":            "want a time such as",
		"2026-13-01":       "want a time such as",
		"12/31":            "want a time such as",
		"now+60":           "a number needs a unit",
		"now+":             "want a number and a unit",
		"now+-5m":          "want a number and a unit",
		"now-1h":           "want a time such as",
		"now+99999999999s": "want a number and a unit",
		"now+99999999days": "want a number and a unit",
		"now+9999weeks":    "at most 36500d",
	} {
		if at, err := parseBegin(text, now, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want %s", text, at, err, want)
		}
	}
}

// A job with --begin starts at that time or later, and the verbs say so.
func TestVerbsPrintTheBeginTime(t *testing.T) {
	doc := strings.NewReplacer(`"reason":""`, `"reason":"BeginTime"`, `"spec":{`, `"spec":{"begin":"2026-01-02T09:00:00Z",`).Replace(jobDoc(idA, "PENDING", ""))
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA:          answer(http.StatusOK, doc),
		"GET /v1/jobs/" + idA + "/why": answer(http.StatusOK, `{"job":"`+idA+`","state":"PENDING","reason":"BeginTime","reason_detail":"begins at 2026-01-02T09:00:00Z","clauses":[],"now":[],"later":[]}`),
	})
	if r := f.muster("show", idA); !strings.Contains(r.stdout, "starts     2026-01-02 09:00:00 UTC or later\n") {
		t.Errorf("show: got %s%s, want the time of --begin", r.stdout, r.err)
	}
	if r := f.muster("why", idA); !strings.Contains(r.stdout, "begins at 2026-01-02 09:00:00 UTC\n") || strings.Contains(r.stdout, "unknown") {
		t.Errorf("why: got %s%s, want the time of --begin and nothing unknown", r.stdout, r.err)
	}
}

func FuzzParseBegin(f *testing.F) {
	for _, text := range []string{"now+1h", "16:00", "2026-12-01T08:00", "12/31/26-08:15", "tomorrow"} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, slurm bool) {
		if _, err := parseBegin(text, time.Unix(1.8e9, 0), slurm); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("got error %q, want one line", err)
		}
	})
}
