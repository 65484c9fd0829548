//go:build e2e

package e2e

// A member that claims the jobs of another, with all roles and with everything that each member can know.

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// peer returns the id of the daemon.
func (d *daemon) peer() job.Peer {
	d.t.Helper()
	for _, n := range d.nodes().Items {
		if n.Name == d.name {
			return n.ID
		}
	}
	d.t.Fatalf("%s does not list itself", d.name)
	return ""
}

// claims sends a daemon a claim of a group and every command about an attempt of it.
func claims(t *testing.T, s *rogue.Session, a *wirepb.AttemptRef, group uint64, e *wirepb.EpochRef, founding []byte) {
	t.Helper()
	err := s.Send(
		&wirepb.Owns{Groups: []*wirepb.GroupEpoch{{Group: group, Epoch: e, Founding: founding}}},
		&wirepb.Signal{Attempt: a, Group: group, Epoch: e, Number: 9},
		&wirepb.Cancel{Attempt: a, Group: group, Epoch: e, GraceNs: 1},
		&wirepb.Query{Attempt: &wirepb.AttemptRef{Job: a.GetJob(), N: a.GetN() + 1}, Group: group, Epoch: e},
		&wirepb.Ack{Attempt: a, Group: group, Epoch: e, N: 4},
	)
	if err != nil {
		t.Fatal(err)
	}
}

// A member that claims another's jobs with any epoch, even the highest, neither commands their tasks nor keeps their
// owner from that, also when the daemons of both restart. Requests about the jobs go to the owner, also those of a
// third host that heard the false claim first.
func TestOnlyTheOwnerOfAJobIsObeyed(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--cpus", "4").start(amy.invite().flags()...)
	amy.untilNodes(2)
	inv := amy.invite("--roles", "worker,scheduler")
	mallory := rogue.Join(t, "mallory", inv.Bootstrap, inv.Token)

	id := amy.ok("submit", "-w", "ben", "--", "sh", "-c", "echo from ben; sleep 600")
	j := amy.untilState(id, "RUNNING")
	group := job.ID(id).Group()
	if group.OfVersionBefore() {
		t.Errorf("the group of %s could be claimed with a proof of the version before", id)
	}
	a := &wirepb.AttemptRef{Job: id, N: int64(j.Tasks[0].Attempt)}
	owners := j.Owner

	// A third host hears the false claim before it has ever heard of the group.
	mallory.Advertise("group/" + group.String())
	cat := newDaemon(t, "cat", "--gpus", "none", "--cpus", "4").start(amy.invite().flags()...)
	third := mallory.Session(cat.peer())
	forged, _ := job.Found(mallory.ID())
	for _, to := range []*rogue.Session{mallory.Session(ben.peer()), third, mallory.Session(amy.peer())} {
		for _, e := range []*wirepb.EpochRef{{Generation: 1, Term: 2}, {Generation: 1, Term: 1 << 40}, {Generation: math.MaxUint64, Term: math.MaxUint64}} {
			claims(t, to, a, uint64(group), e, nil)
			claims(t, to, a, uint64(group), e, forged[:])
		}
	}
	if j := cat.show(id); j.Owner != owners || j.State != job.Running {
		t.Errorf("at cat the job is %s, of %s, want RUNNING, of %s", j.State, j.Owner, owners)
	}
	if out := cat.ok("logs", id); !strings.Contains(out, "from ben") {
		t.Errorf("its output at cat: got %q, want from ben", out)
	}
	staysRunning(t, amy, id, time.Second)
	ben.kill()
	ben.start()
	amy.kill()
	amy.start()
	amy.untilNodes(3)
	ben.untilNodes(3)
	staysRunning(t, amy, id, 3*time.Second)
	ben.waitLog(0, "command ignored: its sender does not own the group")
	amy.untilState(id, "RUNNING")
	cat.ok("cancel", id)
	amy.until(id, "its end", func(j api.Job) bool { return j.State == job.Cancelled })
	// The epoch need not be forgotten here; the verb is for an owner that was restored from a backup.
	out := ben.ok("node", "forget-claim", id)
	if !containsAll(out, []string{string(owners), "has forgotten the epoch"}) {
		t.Errorf("forget-claim: got %q, want the owner", out)
	}
	amy.untilState(amy.ok("submit", "-w", "ben", "--", "true"), "SUCCEEDED")
	ben.fails(1, []string{"not found", "no daemon has claimed"}, "node", "forget-claim", "x1bvykrdtfq3c")
}

// staysRunning checks that a job goes on for a while, whether or not its owner reaches the host.
func staysRunning(t *testing.T, owner *daemon, id string, d time.Duration) {
	t.Helper()
	checkFor(t, d, func() string {
		if j := owner.show(id); j.State != job.Running && j.State != job.Unreachable {
			return "the job is " + string(j.State)
		}
		return ""
	})
}
