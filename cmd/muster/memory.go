package main

// Memory use of the daemon: it keeps free memory while there is work, and returns it to the system when there is
// none, because GPU jobs need it.

import (
	"context"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent accepts a few MB more of a small heap, so that the garbage collector runs half as often.
	gcPercent = 200
	// restLook is how often the daemon checks whether it is idle.
	restLook = 30 * time.Second
	// restBytes bounds the bytes that an idle daemon allocates between two checks: some dozens of times what gossip
	// and the DHT need, and as much as a hundred tasks need.
	restBytes = 8 << 20
)

// rest frees unused memory once after each period of work, until ctx ends. The runtime on its own would keep it.
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

// allocated returns the number of bytes that this process has ever allocated on its heap.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
