package main

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var sink []byte

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var freed atomic.Int32
		done := make(chan struct{})
		go func() {
			rest(ctx, func() { freed.Add(1) })
			close(done)
		}()
		time.Sleep(restLook / 2) // from here on between two checks
		for i, c := range []struct {
			work bool
			want int32
		}{{true, 0}, {true, 0}, {false, 1}, {false, 1}, {true, 1}, {false, 2}, {false, 2}} {
			if c.work {
				sink = make([]byte, 2*restBytes)
			}
			time.Sleep(restLook)
			synctest.Wait()
			if n := freed.Load(); n != c.want {
				t.Errorf("look %d: memory given back %d times, want %d", i, n, c.want)
			}
		}
		stop()
		<-done
	})
}
