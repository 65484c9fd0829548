package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/resources"
)

func TestFindSocketSkipsSocketOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, host, none := filepath.Join(dir, "own"), filepath.Join(dir, "host"), filepath.Join(dir, "none")
	for _, path := range []string{own, host} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uid := os.Getuid()
	for _, c := range []struct {
		own, host string
		uid       int
		want      string
	}{
		{own, host, uid, own},
		{own, none, uid, own},
		{own, host, uid + 1, host},
		{own, none, uid + 1, none},
		{none, host, uid, host},
		{none, none, uid, none},
	} {
		if got := findSocket(c.own, c.host, c.uid); got != c.want {
			t.Errorf("findSocket(%s, %s, %d) = %s, want %s", c.own, c.host, c.uid, got, c.want)
		}
	}
}

// A job without a time limit gets that of the setting, and is marked; a job file cannot contain the mark.
func TestDefaultTimeLimitIsMarked(t *testing.T) {
	for _, c := range []struct {
		limit, asked, want job.Duration
		says, marked       bool
	}{
		{limit: hour, asked: 0, want: hour, marked: true},
		{limit: hour, asked: 2 * hour, want: 2 * hour},
		{limit: hour, asked: 2 * hour, says: true, want: 2 * hour},
		{limit: 0, asked: 0, says: true},
	} {
		s := job.Spec{TimeLimit: c.asked, DefaultTime: c.says}
		jobsBackend{owners: owners{times: newTimeLimits(Config{DefaultTime: c.limit}, resources.Limits{})}}.complete("ada", &s)
		if s.TimeLimit != c.want || s.DefaultTime != c.marked {
			t.Errorf("%+v: got %s, marked %v, want %s, %v", c, s.TimeLimit, s.DefaultTime, c.want, c.marked)
		}
		f, err := s.TaskFile()
		if err != nil || strings.Contains(string(f.Text()), "default_time") {
			t.Errorf("hosts get %s, %v, want no mark", f.Text(), err)
		}
	}
}

const hour = job.Duration(time.Hour)
