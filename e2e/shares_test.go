//go:build e2e

package e2e

// Fair share: two projects share full hosts by their weights, and a restart loses no usage.

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// projects returns the rows of muster users, by project, without the rows of single users.
func (d *daemon) projects() map[string]api.User {
	d.t.Helper()
	var l api.Listing[api.User]
	if err := json.Unmarshal([]byte(d.ok("users", "--json")), &l); err != nil {
		d.t.Fatal(err)
	}
	out := map[string]api.User{}
	for _, u := range l.Items {
		if u.User == "" {
			out[u.Project] = u
		}
	}
	return out
}

// TestProjectsShareFullHostsByWeight has two projects with far more tasks than the hosts can run, one with ten times as
// many as the other, at two daemons.
func TestProjectsShareFullHostsByWeight(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("shares:\n  half_life: 30s\n  projects: {vision: 3, speech: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	amy := newDaemon(t, "amy", "--config", file, "--gpus", "sim:2xH100-80GB", "--cpus", "8").start()
	ben := newDaemon(t, "ben", "--config", file, "--gpus", "sim:2xH100-80GB", "--cpus", "8").start(amy.invite().flags()...)
	amy.untilNodes(2)
	submit := func(d *daemon, project string) string {
		task := "sleep 0.3; echo " + project + " >> " + ran
		return d.ok("submit", "--project", project, "-c", "0", "-G", "1", "--array", "0-399", "--", "sh", "-c", task)
	}
	var all []string
	for range 5 {
		all = append(all, submit(amy, "speech"), submit(ben, "speech"))
	}
	all = append(all, submit(amy, "vision"))
	count := func() map[string]float64 {
		text, _ := os.ReadFile(ran)
		out := map[string]float64{}
		for p := range strings.FieldsSeq(string(text)) {
			out[p]++
		}
		return out
	}
	untilRight(t, 2*patience, func() string { // the other project catches up on what speech ran alone before
		if p := amy.projects()["vision"]; p.Used < 0.95*p.Share {
			return fmt.Sprintf("vision has used %.1f %%", 100*p.Used)
		}
		return ""
	})
	before := count()
	after := before
	untilRight(t, 4*patience, func() string { // several rounds: schedulers learn of usage every 10 s
		after = count()
		if n := after["vision"] + after["speech"] - before["vision"] - before["speech"]; n < 300 {
			return fmt.Sprintf("only %.0f tasks have ended", n)
		}
		return ""
	})
	vision, speech := after["vision"]-before["vision"], after["speech"]-before["speech"]
	part := vision / (vision + speech)
	t.Logf("vision ran %.0f tasks, speech %.0f: %.1f %%, want 75 %%", vision, speech, 100*part)
	if math.Abs(part/0.75-1) > 0.1 || math.Abs((1-part)/0.25-1) > 0.1 {
		t.Errorf("vision has %.1f %% of the run time, want 75 %%", 100*part)
	}
	if p := amy.projects()["vision"]; math.Abs(p.Share-0.75) > 1e-6 || math.Abs(p.Used/p.Share-1) > 0.1 || p.Weight != 3 || p.Waiting == 0 {
		t.Errorf("muster users: got %+v, want a share of 0.75 with weight 3", p)
	}
	untilRight(t, patience, func() string {
		for _, id := range []string{all[1], all[3]} {
			if out := ben.ok("why", id); strings.Contains(out, "have used less of their share") || strings.Contains(out, "behind") {
				return ""
			}
		}
		return "why does not say that others go first: " + ben.ok("why", all[1])
	})
	for _, id := range all {
		amy.ok("cancel", id)
	}
	usage := amy.projects()["vision"].GPUSeconds
	ben.kill()
	ben.start()
	amy.untilNodes(2)
	untilRight(t, patience, func() string {
		if now := amy.projects()["vision"].GPUSeconds; now < usage/3 || now > 1.1*usage {
			return "after the restart vision has used " + time.Duration(now*1e9).String() + ", before " + time.Duration(usage*1e9).String()
		}
		return ""
	})
}
