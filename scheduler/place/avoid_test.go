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
	if a, avoided := as.at(now, "p-a"); len(as) != 2 || !avoided || !a.Hard {
		t.Errorf("avoidances %v", as)
	}
	later := now.Add(7 * time.Second)
	if _, avoided := as.at(later, "p-a"); avoided {
		t.Error("a is avoided for ever")
	}
	as.Add(later, hard("c", 20)) // what is over goes
	if len(as) != 2 {
		t.Errorf("avoidances %v", as)
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
