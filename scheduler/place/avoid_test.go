package place

import (
	"fmt"
	"testing"
	"time"
)

func TestAvoidances(t *testing.T) {
	var as Avoidances
	as.Add(now, Avoidance{})
	as.Add(now, avoid("a", 5))
	as.Add(now, hard("b", 9))
	as.Add(now, hard("a", 7)) // in place of the first
	if a, avoided := as.at(now, "p-a", true); len(as) != 2 || !avoided || !a.Hard {
		t.Errorf("avoidances %v", as)
	}
	later := now.Add(7 * time.Second)
	if _, avoided := as.at(later, "p-a", true); avoided {
		t.Error("a is avoided for ever")
	}
	as.Add(later, hard("c", 20)) // what is over goes
	if len(as) != 2 {
		t.Errorf("avoidances %v, want 2 of them", as)
	}
	for i := range 2 * maxAvoid {
		as.Add(now, avoid(fmt.Sprint(i), 100+i))
	}
	if until, full := as.full(now); len(as) != maxAvoid || !full || until != now.Add((100+maxAvoid)*time.Second) {
		t.Errorf("%d are avoided, all until %s: %v", len(as), until.Sub(now), full)
	}
	if _, full := as.full(now.Add(time.Hour)); full {
		t.Error("none is avoided any more")
	}
}

// A host where the task has failed is avoided in any case while it waits for another one, which must exist. A decline
// does not make it forget that.
func TestAvoidancesOfHostsWhereItFailed(t *testing.T) {
	var as Avoidances
	failed := Avoidance{Peer: "p-a", Failed: true, Until: now.Add(time.Hour), WaitUntil: now.Add(time.Minute)}
	as.Add(now, failed)
	as.Add(now, hard("a", 5))
	if a, _ := as.at(now, "p-a", false); !a.Hard {
		t.Errorf("it goes where it was declined: %+v", a)
	}
	later := now.Add(6 * time.Second)
	for _, elsewhere := range []bool{true, false} {
		if a, avoided := as.at(later, "p-a", elsewhere); !avoided || a.Hard != elsewhere {
			t.Errorf("with another host %v: %+v, %v", elsewhere, a, avoided)
		}
	}
	if !as.waits(later) || as.waits(now.Add(time.Minute)) || !as.failedAt("p-a") || as.failedAt("p-b") {
		t.Errorf("avoidances %+v", as)
	}
	if a, avoided := as.at(now.Add(time.Minute), "p-a", true); !avoided || a.Hard {
		t.Errorf("after the wait: %+v, %v", a, avoided)
	}
}
