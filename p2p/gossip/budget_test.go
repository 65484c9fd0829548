package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// One neighbour floods. Few of its announcements are taken, and all of another neighbour.
func TestNeighboursHaveBudgets(t *testing.T) {
	b, now := newBudgets(), time.Unix(1e9, 0)
	const seconds, each, size = 60, 5000, 300
	taken, heard := 0, 0
	for range seconds {
		for n := range each {
			now = now.Add(time.Second / each)
			if b.spend("mallory", size+messageCost, now) == nil {
				taken++
			}
			if n%10 == 0 && b.spend("honest", size+messageCost, now) == nil {
				heard++
			}
		}
	}
	if most := (burstNeighbour + seconds*perNeighbour) / (size + messageCost); taken > most+1 || heard != seconds*each/10 {
		t.Errorf("%d of the flood were taken, want at most %d; %d of another neighbour, want %d", taken, most+1, heard, seconds*each/10)
	}
	for n := range 3 * maxNeighbours {
		now = now.Add(time.Millisecond)
		if err := b.spend(peer.ID(fmt.Sprint(n)), size, now); err != nil {
			t.Fatalf("neighbour %d: %v", n, err)
		}
	}
	if b.neighbours.Len() > maxNeighbours {
		t.Errorf("%d neighbours are remembered, want at most %v", b.neighbours.Len(), maxNeighbours)
	}
}
