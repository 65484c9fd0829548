package daemon

// Doctor: identities of which two daemons run.

import (
	"fmt"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/p2p"
)

// twinFact names the identities of which two daemons were seen to run of late.
func twinFact(seen []p2p.Sighting) api.Fact {
	f := api.Fact{Name: "identities", State: api.FactOK, Detail: "no two daemons have the same"}
	if len(seen) == 0 {
		return f
	}
	s := seen[0]
	f.State, f.Detail = api.FactFail, fmt.Sprintf("two daemons with the identity %s were running: at %s and at %s", s.Peer, s.Here, s.There)
	if n := len(seen) - 1; n > 0 {
		f.Detail += fmt.Sprintf(", and of %d other identities too", n)
	}
	f.Advice = "a data directory was copied. The younger daemon stops; on its host, empty the data directory and join with a token of `muster invite`"
	return f
}

// twinDetail tells people in a listing of nodes that another daemon with the identity of this one was seen; empty: none was.
func twinDetail(host *p2p.Host) string {
	for _, s := range host.Twins.Seen() {
		if s.Peer == host.Peer() {
			return fmt.Sprintf("a daemon with the same identity was at %s, and this one is at %s: muster doctor", s.There, s.Here)
		}
	}
	return ""
}
