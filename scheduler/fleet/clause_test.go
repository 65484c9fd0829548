package fleet

import (
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

func TestIsNode(t *testing.T) {
	p := &lease.Profile{Name: "gpu-07", Peer: "12D3KooWAbCdEf"}
	for name, want := range map[string]bool{
		"gpu-07": true, "gpu-*": true, "gpu-0?": true, "12D3KooWAbCdEf": true, "CdEf": true,
		"gpu": false, "Ef": false, "cpu-*": false, "[": false, "": false,
	} {
		if got := isNode(p, name); got != want {
			t.Errorf("isNode(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestImageClauses(t *testing.T) {
	bare := &lease.Profile{Worker: true, Drivers: []string{lease.DriverExec}}
	engine := &lease.Profile{Worker: true, Drivers: []string{lease.DriverExec, lease.DriverDocker}, Mounts: []string{"/data"}}
	for _, c := range []struct {
		mounts       []string
		bare, engine string
	}{
		{nil, "no Docker engine", ""},
		{[]string{"/data/set:/in:ro"}, "no Docker engine", ""},
		{[]string{"/etc:/in"}, "no Docker engine", "lets containers see /data"},
	} {
		clauses, err := ClausesOf(job.Spec{Image: "busybox", Mounts: c.mounts})
		if err != nil {
			t.Fatal(err)
		}
		for p, want := range map[*lease.Profile]string{bare: c.bare, engine: c.engine} {
			got := ""
			for _, clause := range clauses {
				if why := clause.Test(p); why != "" && got == "" {
					got = why
				}
			}
			if got != want {
				t.Errorf("mounts %v on %v: %q, want %q", c.mounts, p.Drivers, got, want)
			}
		}
	}
}
