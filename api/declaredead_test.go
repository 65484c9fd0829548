package api

// A node is declared dead through any daemon. Either all owners give up their tasks on it, or none does.

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
)

// remove removes a daemon from the test's cluster, as the others see it.
func (c *cluster) remove(d *daemon) {
	d.back.Close()
	d.back.cut()
	for _, o := range c.daemons {
		o.mu.Lock()
		o.states[d.peer] = NodeLost
		o.mu.Unlock()
	}
}

func TestDeclareDeadGivesUpTasksAtAllOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal", "dan")
		amy, ben, cal, dan := c.daemons[0], c.daemons[1], c.daemons[2], c.daemons[3]
		amy.server.auth.operators = []string{"amy"}
		c.remove(dan)
		amy.held[dan.peer], cal.held[dan.peer] = 1, 2
		d, err := amy.client.DeclareDead(t.Context(), "dan", true)
		if err != nil || !d.DryRun || d.Tasks != 3 || d.Daemons != 2 || d.ID != dan.peer || d.Name != "dan" || len(d.Partial) != 0 {
			t.Errorf("dry run = %+v, %v, want 3 tasks of 2 daemons on dan", d, err)
		}
		if got := fmt.Sprint(amy.asked, ben.asked, cal.asked); got != "[] [] []" {
			t.Errorf("a dry run asked for %s, want nothing", got)
		}
		d, err = amy.client.DeclareDead(t.Context(), string(dan.peer[len(dan.peer)-5:]), false)
		if err != nil || d.DryRun || d.Tasks != 3 || d.Daemons != 2 || d.ID != dan.peer || d.Schema != SchemaDeath {
			t.Errorf("DeclareDead = %+v, %v, want 3 tasks of 2 daemons on dan", d, err)
		}
		said := "[dead " + dan.peer.Short() + " by amy]"
		if got := fmt.Sprint(amy.asked, ben.asked, cal.asked); got != said+" "+said+" "+said {
			t.Errorf("asked %s, want %s", got, said+" "+said+" "+said)
		}
		if d, err = amy.client.DeclareDead(t.Context(), "dan", false); err != nil || d.Tasks != 0 || d.Daemons != 0 {
			t.Errorf("a second DeclareDead = %+v, %v, want no tasks", d, err)
		}
		// No daemon knows this node any more; its whole ID suffices.
		id := job.Peer(peerIDBegin + strings.Repeat("z", 44))
		cal.held[id] = 1
		if d, err = amy.client.DeclareDead(t.Context(), string(id), false); err != nil || d.Tasks != 1 || d.LastSeenAt != nil || d.Name != id.Short() {
			t.Errorf("DeclareDead of a forgotten node = %+v, %v, want 1 task", d, err)
		}
	})
}

// No task is given up on a node that answers any daemon.
func TestDeclareDeadRefusesANodeThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal", "dan")
		amy, ben, cal, dan := c.daemons[0], c.daemons[1], c.daemons[2], c.daemons[3]
		amy.server.auth.operators = []string{"amy"}
		for _, d := range c.daemons {
			d.held[dan.peer] = 1
		}
		refused := func(what, node, want string) {
			t.Helper()
			for _, dryRun := range []bool{true, false} {
				_, err := amy.client.DeclareDead(t.Context(), node, dryRun)
				if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "drain it instead") {
					t.Errorf("%s: got %v, want ErrConflict with %q and the hint to drain it", what, err, want)
				}
			}
		}
		refused("this daemon", "amy", "node amy: conflict: it answers you")
		refused("one with a connection", "dan", "node dan: conflict: it answers amy")
		amy.states[dan.peer] = NodeLost // amy has lost contact with it, but it is there
		refused("one that can be dialled", "dan", "it answers amy")
		c.remove(dan)
		cal.states[dan.peer] = NodeReady
		refused("one with a connection to another daemon", "dan", "it answers cal")
		cal.states[dan.peer] = NodeSuspect
		ben.meets = dan.peer
		refused("one with a session with another scheduler", "dan", "it answers ben")
		ben.meets = ""
		cal.name = "dan"
		if _, err := amy.client.DeclareDead(t.Context(), "dan", false); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), string(dan.peer)) {
			t.Errorf("a name of two nodes: got %v, want ErrBad with their IDs", err)
		}
		if _, err := amy.client.DeclareDead(t.Context(), "nobody", false); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "whole id") {
			t.Errorf("an unknown node: got %v, want ErrNotFound with the hint to give the whole id", err)
		}
		if len(amy.asked)+len(ben.asked)+len(cal.asked) != 0 {
			t.Errorf("tasks were given up: got %v %v %v, want none", amy.asked, ben.asked, cal.asked)
		}
	})
}

// If a node answers with a new data directory, the tasks of its earlier one are given up.
func TestDeclareDeadGivesUpTasksOfAnEarlierStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "dan")
		amy, ben, dan := c.daemons[0], c.daemons[1], c.daemons[2]
		amy.server.auth.operators = []string{"amy"}
		store := dan.profile().Store
		ben.held[job.Peer(string(dan.peer)+" before "+store)] = 2
		for _, dryRun := range []bool{true, false} {
			if d, err := amy.client.DeclareDead(t.Context(), "dan", dryRun); err != nil || d.Tasks != 2 || d.Daemons != 1 || d.DryRun != dryRun {
				t.Errorf("got %+v, %v, want 2 tasks of 1 daemon", d, err)
			}
		}
		if want := fmt.Sprintf("dead %s before %s by amy", dan.peer.Short(), store); !slices.Contains(ben.asked, want) {
			t.Errorf("asked %q, want %q", ben.asked, want)
		}
	})
}

// Daemons that do not answer are named, within the time that a client waits. The others give up their tasks.
func TestDeclareDeadNamesSilentOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal", "dan", "eli")
		amy, ben, cal, dan, eli := c.daemons[0], c.daemons[1], c.daemons[2], c.daemons[3], c.daemons[4]
		amy.server.auth.operators = []string{"amy"}
		c.remove(dan)
		c.remove(eli)
		close(ben.silent)
		cal.held[dan.peer] = 2
		began := time.Now()
		d, err := amy.client.DeclareDead(t.Context(), "dan", false)
		if took := time.Since(began); err != nil || d.Tasks != 2 || d.Daemons != 1 || !slices.Equal(d.Partial, []string{"ben", "eli"}) || took > deathCheckAll {
			t.Errorf("DeclareDead = %+v, %v after %s, want 2 tasks of 1 daemon, without ben and eli", d, err, took)
		}
		// A daemon that has only the role worker owns no jobs and is not asked.
		eli.roles = []string{"worker"}
		cal.held[dan.peer], cal.stuck = 2, fmt.Errorf("%w: the disk is full", ErrUnavailable)
		if d, err = amy.client.DeclareDead(t.Context(), "dan", false); err != nil || d.Tasks != 0 || !slices.Equal(d.Partial, []string{"ben", "cal"}) {
			t.Errorf("with a full disk at cal: got %+v, %v, want no tasks, without ben and cal", d, err)
		}
		// With no other daemon to ask, the error of this daemon is shown.
		for _, o := range []*daemon{ben, cal} {
			o.roles = []string{"worker"}
		}
		amy.held[dan.peer], amy.stuck = 1, fmt.Errorf("%w: the disk is full", ErrUnavailable)
		if _, err = amy.client.DeclareDead(t.Context(), "dan", false); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("with a full disk here: got %v, want ErrUnavailable: disk is full", err)
		}
	})
}

// Impossible answers of a member are ignored, and a request of a member is not passed on.
func TestDeclareDeadIgnoresImpossibleAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal", "dan")
		amy, ben, cal, dan := c.daemons[0], c.daemons[1], c.daemons[2], c.daemons[3]
		amy.server.auth.operators = []string{"amy"}
		c.remove(dan)
		amy.held[dan.peer], ben.held[dan.peer], cal.held[dan.peer] = 1, maxGiven+1, 1<<62
		d, err := amy.client.DeclareDead(t.Context(), "dan", true)
		if err != nil || d.Tasks != 1 || !slices.Equal(d.Partial, []string{"ben", "cal"}) {
			t.Errorf("with two members that exaggerate: got %+v, %v, want 1 task, without ben and cal", d, err)
		}
		ben.held[dan.peer], cal.held[dan.peer] = 1, 1
		member := &Client{http: amy.server.daemons.http, base: "http://" + string(ben.peer), where: "ben"}
		path := "/v1/nodes/" + string(dan.peer) + "/declare-dead"
		asks := func(header http.Header) (d Death, err error) {
			err = member.callWith(t.Context(), http.MethodPost, path, nil, header, DeclareDeadRequest{}, &d)
			return d, err
		}
		if _, err := asks(http.Header{headerUser: {"eve"}}); !errors.Is(err, ErrDenied) || len(ben.asked) != 0 {
			t.Errorf("for a user who is no operator: got %v, %v, want ErrDenied and no request", err, ben.asked)
		}
		if d, err := asks(http.Header{headerUser: {"amy"}, headerOperator: {"1"}}); err != nil || d.Tasks != 1 || len(cal.asked)+len(amy.asked) != 0 {
			t.Errorf("for an operator: got %+v, %v, want 1 task; others were asked %v %v, want nothing", d, err, amy.asked, cal.asked)
		}
	})
}

func TestDeclareDeadIsForOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		c.remove(ben)
		for _, dryRun := range []bool{true, false} {
			if _, err := amy.client.DeclareDead(t.Context(), "ben", dryRun); !errors.Is(err, ErrDenied) {
				t.Errorf("DeclareDead = %v, want ErrDenied", err)
			}
		}
		if len(amy.asked) != 0 {
			t.Errorf("asked %v, want nothing", amy.asked)
		}
	})
}
