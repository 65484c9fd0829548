package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSessionComesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		if err := a.Send(b.id(), testOffer(1)); !errors.Is(err, ErrNoSession) {
			t.Errorf("Send without a session: %v", err)
		}
		a.Want(b.id())
		time.Sleep(time.Second)
		if !a.isUp(b.id()) || !b.isUp(a.id()) {
			t.Fatalf("after a second: %v, %v", a.seen, b.seen)
		}
		for i := range uint64(1000) {
			if err := a.Send(b.id(), testOffer(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		b.recorder.mu.Lock()
		defer b.recorder.mu.Unlock()
		if len(b.offers) != 1000 {
			t.Fatalf("%d of 1000 offers arrived", len(b.offers))
		}
		for i, id := range b.offers {
			if id != uint64(i) {
				t.Fatalf("offer %d came as number %d", id, i)
			}
		}
		if rtt, ok := a.RTT(b.id()); !ok || rtt < 2*oneWay || rtt > 3*oneWay {
			t.Errorf("round trip %s, %v", rtt, ok)
		}
	})
}
