package main

// How the daemon uses memory: with room to work while there is work, and given
// back to the system, where GPU jobs want it, when there is none.

import (
	"context"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent trades a few MB of a small heap for a collector that runs half as
	// often.
	gcPercent = 200
	// restLook is how often the daemon looks whether it is at rest.
	restLook = 30 * time.Second
	// restBytes are allocated at most between two looks by a daemon at rest: some
	// dozens of times what gossip and the DHT take, and what a hundred tasks take.
	restBytes = 8 << 20
)

// rest frees unused memory once after each spell of work, until ctx ends. Left
// to itself, the runtime keeps room for the next spell for good.
func rest(ctx context.Context, free func()) {
	look := time.NewTicker(restLook)
	defer look.Stop()
	before, worked := allocated(), true
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now := allocated()
		busy := now-before > restBytes
		if worked && !busy {
			free()
			now = allocated()
		}
		before, worked = now, busy
	}
}

// allocated is how many bytes this process has ever allocated on its heap.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
