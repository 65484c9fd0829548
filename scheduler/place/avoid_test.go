package place

import (
	"fmt"
	"testing"
	"time"
)

func TestAvoidancesEndAndAreBounded(t *testing.T) {
	var as Avoidances
	as.Add(now, Avoidance{})
	as.Add(now, avoid("a", 5))
	as.Add(now, hard("b", 9))
	as.Add(now, hard("a", 7)) // in place of the first
	if a, avoided := as.at(now, "p-a", true); len(as) != 2 || !avoided || !a.Hard {
		t.Errorf("avoidances %v, want 2, with a avoided hard", as)
	}
	later := now.Add(7 * time.Second)
	if _, avoided := as.at(later, "p-a", true); avoided {
		t.Error("a is avoided after its time")
	}
	as.Add(later, hard("c", 20)) // expired ones go
	if len(as) != 2 {
		t.Errorf("avoidances %v, want 2 of them", as)
	}
	for i := range 2 * maxAvoid {
		as.Add(now, avoid(fmt.Sprint(i), 100+i))
	}
	if until, full := as.full(now); len(as) != maxAvoid || !full || until != now.Add((100+maxAvoid)*time.Second) {
		t.Errorf("%d are avoided, all until %s: %v, want the maximum, until the first expires", len(as), until.Sub(now), full)
	}
	if _, full := as.full(now.Add(time.Hour)); full {
		t.Error("no host is avoided any more, but the list is full")
	}
}

// While a task waits for another host, which must exist, it avoids a host where it has failed in any case. A decline
// does not change that.
func TestDeclineKeepsTheAvoidanceAfterAFailure(t *testing.T) {
	var as Avoidances
	failed := Avoidance{Peer: "p-a", Failed: true, Until: now.Add(time.Hour), WaitUntil: now.Add(time.Minute)}
	as.Add(now, failed)
	as.Add(now, hard("a", 5))
	if a, _ := as.at(now, "p-a", false); !a.Hard {
		t.Errorf("after a decline the avoidance is %+v, want a hard one", a)
	}
	later := now.Add(6 * time.Second)
	for _, elsewhere := range []bool{true, false} {
		if a, avoided := as.at(later, "p-a", elsewhere); !avoided || a.Hard != elsewhere {
			t.Errorf("with another host: %v, the avoidance is %+v, %v, want a hard one only then", elsewhere, a, avoided)
		}
	}
	if !as.waits(later) || as.waits(now.Add(time.Minute)) || !as.failedAt("p-a") || as.failedAt("p-b") {
		t.Errorf("avoidances %+v, want a wait of a minute at p-a alone", as)
	}
	if a, avoided := as.at(now.Add(time.Minute), "p-a", true); !avoided || a.Hard {
		t.Errorf("after the wait: %+v, %v, want a soft one", a, avoided)
	}
}
