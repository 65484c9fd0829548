package api

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/job"
)

// A member that lists jobs, nodes and GPUs of others, or changes of their jobs, is not believed. Its true claims are.
func TestMembersAreBelievedAboutTheirOwnOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "mal")
		amy, ben, mal := c.daemons[0], c.daemons[1], c.daemons[2]
		ben.put(ben.newJob(10))
		mal.put(mal.newJob(11))
		all, err := amy.client.Jobs(t.Context(), JobFilter{})
		if err != nil || len(all.Items) != 2 {
			t.Fatalf("jobs: got %+v, %v, want 2", all.Items, err)
		}
		own, theirs := all.Items[0], all.Items[1]
		if own.Owner != mal.peer {
			own, theirs = theirs, own
		}
		forged := func(owner job.Peer, id job.ID) Job {
			j := own
			j.ID, j.Owner, j.State = id, owner, job.Succeeded
			return j
		}
		rows := []Job{own, forged(ben.peer, theirs.ID), forged(mal.peer, theirs.ID), forged(ben.peer, job.NewID(ben.group, 99)), forged(mal.peer, job.NewID(amy.group, 98))}
		node := func(p job.Peer) Node {
			return Node{Schema: SchemaNode, ID: p, Name: "mal", State: NodeReady, CPUs: 9999}
		}
		n := node(ben.peer)
		lines := []feedLine{{Hello: &feedHello{}}, {Node: &n}, {Job: &own}, {Synced: true}, {Gone: theirs.ID}}
		for i := range rows {
			lines = append(lines, feedLine{Job: &rows[i]})
		}
		changed := own
		changed.Priority++
		lines = append(lines, feedLine{Job: &changed}) // its own job comes last
		mal.mu.Lock()
		mal.lies = map[string]any{
			"/v1/jobs": Listing[Job]{Schema: SchemaJobs, Items: rows}, "/v1/nodes": Listing[Node]{Schema: SchemaNodes, Items: []Node{node(ben.peer)}},
			"/v1/nodes/" + string(mal.peer): node(ben.peer),
			"/v1/stats":                     Stats{Schema: SchemaStats, Nodes: map[NodeState]int{NodeReady: 1_000_000}},
			pathFeed:                        lines,
		}
		mal.mu.Unlock()

		l, err := amy.client.Jobs(t.Context(), JobFilter{})
		if err != nil || len(l.Items) != 2 || !slices.ContainsFunc(l.Items, func(j Job) bool { return j.ID == own.ID }) ||
			slices.ContainsFunc(l.Items, func(j Job) bool { return j.ID == theirs.ID && j.State == job.Succeeded }) {
			t.Errorf("jobs: got %+v, %v, want both, unchanged", l.Items, err)
		}
		synctest.Wait() // after each request amy has read all lines of mal's feed
		nodes, err := amy.client.Nodes(t.Context())
		if err != nil || len(nodes.Items) != 3 || !slices.Equal(nodes.Partial, []string{"mal"}) ||
			slices.ContainsFunc(nodes.Items, func(n Node) bool { return n.CPUs == 9999 }) {
			t.Errorf("nodes: got %+v, %v, want 3, without the claims of mal", nodes, err)
		}
		synctest.Wait()
		if n, err := amy.client.Node(t.Context(), string(mal.peer)); err != nil || n.ID != mal.peer || n.CPUs == 9999 {
			t.Errorf("node: got %+v, %v, want mal without its claims", n, err)
		}
		synctest.Wait()
		if s, err := amy.client.Stats(t.Context()); err != nil || s.Nodes[NodeReady] > 3 {
			t.Errorf("stats: got %+v, %v, want at most 3 nodes", s, err)
		}
		synctest.Wait()
		for e, err := range amy.client.Events(t.Context(), EventFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventGone || e.Kind == EventJob && e.Job.State == job.Succeeded {
				t.Errorf("amy got the event %s of %s, want none", e.Kind, e.ID)
			}
			if e.Kind == EventJob && e.ID == own.ID {
				break
			}
		}
		synctest.Wait()
		_, _, text := amy.raw(t, "GET", "/metrics", "")
		if !strings.Contains(text, "muster_foreign_rows_total 17\n") { // 4 jobs, 3 answers about nodes, 5 lines of its feed, which breaks and begins again
			t.Errorf("foreign rows counted: got %s, want 17", regexp.MustCompile("muster_foreign_rows_total .*").FindAllString(text, -1))
		}
	})
}
