package scheduler

// Reasons: the sentences that tell people why a task waits.

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
)

// silence is the reason of a task whose host does not answer.
func silence(d *job.Task, partition string) string {
	name := cmp.Or(d.NodeName, string(d.Node))
	if partition == partitionHold {
		return name + " does not answer; the task waits for it (partition: hold); if that host is gone for good: muster node declare-dead " + name
	}
	return name + " does not answer; its lease has not run out"
}

// closedReason is the reason if none of the hosts that could run the task takes tasks now.
func closedReason(x *fleet.Outlook) job.Reason {
	if x.Draining > 0 {
		detail := ""
		if x.Detail != "" {
			detail = " (" + x.Detail + ")"
		}
		return job.Reason{
			Word:   job.ReasonNodesDraining,
			Detail: lease.Clip(fmt.Sprintf("%d of %d nodes that could run it take no tasks%s", x.Draining, x.Able, detail)),
		}
	}
	if x.Open > 0 { // a gang needs more of them
		return job.Reason{Word: job.ReasonNoPeers, Detail: fmt.Sprintf("only %d of the %d nodes that could run it answer", x.Open, x.Able)}
	}
	return job.Reason{Word: job.ReasonNoPeers, Detail: fmt.Sprintf("none of the %d nodes that could run it answers", x.Able)}
}

// lackText says what is missing on how many hosts, as "not enough free gpus on 1 and cpus on 2 of 3 nodes that could
// run it". If the task wants a host for itself, the other tasks there are in its way, and else a task that does.
func lackText(lack map[string]int, open int, exclusive bool) string {
	var parts []string
	for _, what := range []string{"gpus", "cpus", "memory"} {
		if n := lack[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s on %d", what, n))
		}
	}
	text := ""
	if len(parts) > 0 {
		text = "not enough free " + strings.Join(parts, " and ")
	}
	if n := lack["tasks"]; n > 0 {
		if text != "" {
			text += ", "
		}
		if exclusive {
			text += fmt.Sprintf("other tasks on %d", n)
		} else {
			text += fmt.Sprintf("a task that has the node for itself on %d", n)
		}
	}
	return fmt.Sprintf("%s of %d nodes that could run it", text, open)
}
