package api

// Drain and resume through any daemon.

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Any daemon can drain any node. The node's own daemon learns the user, and computes the deadline by its own clock.
func TestAnyDaemonCanDrainANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.server.auth.operators = []string{"amy"}
		seconds := 90.0
		n, err := amy.client.Drain(t.Context(), "ben", DrainRequest{Reason: "new fans", Deadline: &seconds})
		if err != nil || n.Name != "ben" || n.Drain == nil || n.Drain.Reason != "new fans" || n.Drain.By != "amy" {
			t.Fatalf("Drain = %+v, %v, want ben drained by amy with the reason", n, err)
		}
		if left := n.Drain.Deadline.Sub(n.Drain.Since); left != 90*time.Second {
			t.Errorf("deadline after %s, want 90 s", left)
		}
		if n, err = amy.client.Resume(t.Context(), string(ben.peer[:len(ben.peer)-1])); err != nil || n.Drain != nil {
			t.Errorf("Resume by the beginning of the id = %+v, %v, want no drain", n, err)
		}
		if n, err = amy.client.Drain(t.Context(), "amy", DrainRequest{}); err != nil || n.Drain == nil || n.Drain.Deadline != nil {
			t.Errorf("Drain of the daemon's own node = %+v, %v, want no deadline", n, err)
		}
		if got := fmt.Sprint(ben.asked, amy.asked); got != "[drain new fans by amy resume] [drain  by amy]" {
			t.Errorf("asked %s, want drain and resume of ben, and drain of amy", got)
		}
	})
}
