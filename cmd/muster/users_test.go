package main

import (
	"net/http"
	"strings"
	"testing"
)

// The list shows the limits of a user who has run nothing yet and has no share, and asks only for the named users.
func TestUsersShowsLimitsWithoutUse(t *testing.T) {
	var asked []string
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/users": func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("user"))
		answer(http.StatusOK, `{"schema":"muster.users/v1","items":[{"user":"zoe","idle":true,"weight":1,"limits":[
			{"nodes":3,"priority":50,"max_time":7200,"gpus":4,"memory":1073741824,"cluster_tasks":100,"cluster_gpus":8,"cluster_cpus":64,"cluster_memory":2147483648},
			{"nodes":1,"max_time":86400}]}]}`)(w, r)
	}})
	f.muster("users")
	r := f.muster("users", "zoe", "amy")
	want := "priority=50 max_time=2h gpus=4 memory=1GiB on each of 3 nodes, " +
		"cluster_tasks=100 cluster_gpus=8 cluster_cpus=64 cluster_memory=2GiB on all nodes together, as 3 of them say, max_time=1d on 1 node"
	if r.code != 0 || !strings.Contains(r.stdout, want) {
		t.Errorf("exit %d, %s%s, want exit 0 and stdout with %q", r.code, r.stdout, r.err, want)
	}
	row := strings.Fields(strings.Split(r.stdout, "\n")[1])
	if got := strings.Join(row[:3], " "); got != "- zoe -" {
		t.Errorf("the row begins with %q, want - zoe -", got)
	}
	if len(asked) != 2 || asked[0] != "" || asked[1] != "zoe,amy" {
		t.Errorf("asked for %q, want all users, then zoe and amy", asked)
	}
}
