package ratelimit

import (
	"testing"
	"time"
)

// A key keeps its limiter until it has its whole burst again; only then another one takes its place.
func TestKeysAreBounded(t *testing.T) {
	now := time.Unix(1e9, 0)
	keys := New[string](Rule{Rate: 1, Burst: 2, Most: 2, Sweep: 10 * time.Second})
	for _, k := range []string{"a", "b"} {
		if l := keys.Of(k, now); !l.AllowN(now, 2) || keys.Of(k, now).AllowN(now, 1) {
			t.Errorf("%s: not a burst of 2", k)
		}
	}
	if keys.Of("c", now) != nil || keys.Len() != 2 {
		t.Error("a third key has taken the place of one in use")
	}
	if keys.Of("c", now.Add(9*time.Second)) != nil {
		t.Error("searched again too soon")
	}
	if keys.Of("c", now.Add(10*time.Second)) == nil || keys.Len() != 1 {
		t.Errorf("%d keys, want only the new one", keys.Len())
	}
}

// Kept never gives a key a second allowance, also beyond the bound.
func TestKeptLimiterIsOneForEachKey(t *testing.T) {
	now := time.Unix(1e9, 0)
	keys := New[string](Rule{Rate: 1, Burst: 2, Most: 2})
	for _, k := range []string{"a", "b", "c", "d"} {
		if l := keys.Kept(k, now); !l.AllowN(now, 2) || keys.Kept(k, now).AllowN(now, 1) {
			t.Errorf("%s: got another allowance, want one burst of 2", k)
		}
	}
	if keys.Kept("e", now.Add(2*time.Second)); keys.Len() != 1 {
		t.Errorf("%d keys once the others are unused, want 1", keys.Len())
	}
}
