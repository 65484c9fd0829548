//go:build e2e

package e2e

// A job whose start one node can predict idles nothing on the others, and what is kept for it is reported with its id.

import (
	"strings"
	"testing"
)

// threeWithFourGPUs starts three daemons with four GPUs each. On each a task with a time limit holds two of them, until
// its gate opens.
func threeWithFourGPUs(t *testing.T, limits ...string) (dev [3]*daemon, gates []gate) {
	t.Helper()
	flags := []string{"--gpus", "sim:4xH100-80GB", "--cpus", "8"}
	dev[0] = newDaemon(t, "dev1", flags...).start()
	inv := dev[0].invite("--uses", "2")
	for i, name := range []string{"dev2", "dev3"} {
		dev[i+1] = newDaemon(t, name, flags...).start(inv.flags()...)
	}
	for _, d := range dev {
		d.untilNodes(3)
	}
	for i, limit := range limits {
		g := newGate(t)
		gates = append(gates, g)
		args := append([]string{"submit", "--nodelist", dev[i].name, "-G", "2", "-t", limit, "--"}, g.script("exit 0")...)
		dev[0].untilState(dev[0].ok(args...), "RUNNING")
	}
	return dev, gates
}

// waitExplanation waits until `muster why` reports something about a job, and returns all of it.
func (d *daemon) waitExplanation(id, words string) string {
	d.t.Helper()
	out := ""
	until(d, "why "+id, words, func() string { out = d.ok("why", id); return out }, func(s string) bool { return strings.Contains(s, words) })
	return out
}

// TestOneNodeKeepsForAJob has a job for four GPUs that is to start on dev2 within 33 minutes. Jobs that may run for
// longer start at once on dev1 and dev3, where it could start only later. On dev2 they wait, and the reason names the
// job.
func TestOneNodeKeepsForAJob(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string][]string{"big4": {"-G", "4"}, "exclusive": {"--exclusive"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dev, gates := threeWithFourGPUs(t, "60m", "33m", "50m")
			big := dev[0].ok(append(append([]string{"submit"}, asks...), "-t", "1h", "--", "true")...)
			dev[0].waitExplanation(big, "on dev2, by the time limits")
			for _, d := range dev {
				for range 2 { // on dev1 and dev3 two GPUs are free
					id := d.ok("submit", "--exclude", "dev2", "-G", "2", "--", "true")
					if at := d.untilState(id, "SUCCEEDED").Tasks[0].Node; at == "dev2" {
						t.Errorf("%s ran on %s, want another node", id, at)
					}
				}
			}
			low := dev[2].ok("submit", "--priority", "10", "--nodelist", "dev3", "-G", "1", "--", "true")
			dev[2].untilState(low, "SUCCEEDED")

			waits := dev[2].ok("submit", "--nodelist", "dev2", "-G", "1", "--", "true")
			who := dev[0].show(big).User
			words := "dev2 keeps 2 gpus for job " + big + " of " + who + ", which starts there within "
			why := dev[2].waitExplanation(waits, words)
			t.Logf("muster why\n%s", why)
			for _, bad := range []string{"set aside", "now dev"} {
				if strings.Contains(strings.Join(strings.Fields(why), " "), bad) {
					t.Errorf("why: got %q, want it left out:\n%s", bad, why)
				}
			}
			if out := dev[0].ok("offers", "--nodelist", "dev2", "-G", "1"); !strings.Contains(out, "keeps 2 gpus for job "+big) {
				t.Errorf("offers: want the job for which GPUs are kept, got\n%s", out)
			}
			if out := dev[0].ok("offers", "--nodelist", "dev2", "-G", "1", "-t", "10m"); strings.Contains(out, "keeps") {
				t.Errorf("offers of a job that ends before: want nothing kept, got\n%s", out)
			}
			short := dev[1].ok("submit", "--nodelist", "dev2", "-G", "1", "-t", "10m", "--", "true")
			dev[1].untilState(short, "SUCCEEDED")
			if doc := dev[2].show(waits); doc.State != "PENDING" {
				t.Errorf("the job that would delay the large one is %s, want PENDING", doc.State)
			}
			gates[1].open()
			dev[0].untilState(big, "SUCCEEDED")
			dev[2].untilState(waits, "SUCCEEDED")
		})
	}
}
