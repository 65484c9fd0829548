// Package ratelimit holds a rate limiter for each key, such as a peer, with a bound on the number of keys.
package ratelimit

import (
	"time"

	"golang.org/x/time/rate"
)

// Rule is the rate that each key may have, and the number of keys.
type Rule struct {
	Rate  rate.Limit
	Burst int
	Most  int           // keys
	Sweep time.Duration // the least time between two searches for keys to forget
}

// Keys are the limiters by key. They are not safe for concurrent use.
type Keys[K comparable] struct {
	rule  Rule
	byKey map[K]*rate.Limiter
	swept time.Time
}

// New returns limiters for a rule.
func New[K comparable](rule Rule) *Keys[K] {
	return &Keys[K]{rule: rule, byKey: map[K]*rate.Limiter{}}
}

// Len returns the number of keys.
func (k *Keys[K]) Len() int { return len(k.byKey) }

// Of returns the limiter of a key. If there are too many keys, it forgets those that have their whole burst again, because a
// new limiter allows them as much. It returns nil if that does not help.
func (k *Keys[K]) Of(key K, now time.Time) *rate.Limiter {
	l := k.byKey[key]
	if l != nil {
		return l
	}
	if len(k.byKey) >= k.rule.Most && now.Sub(k.swept) >= k.rule.Sweep {
		k.swept = now
		for x, l := range k.byKey {
			if l.TokensAt(now) >= float64(k.rule.Burst) {
				delete(k.byKey, x)
			}
		}
	}
	if len(k.byKey) >= k.rule.Most {
		return nil
	}
	l = rate.NewLimiter(k.rule.Rate, k.rule.Burst)
	k.byKey[key] = l
	return l
}

// Kept is Of for keys that others bound, such as open sessions: it keeps the limiter of a key beyond Rule.Most too, so that
// no key ever gets a second allowance. It never returns nil.
func (k *Keys[K]) Kept(key K, now time.Time) *rate.Limiter {
	l := k.Of(key, now)
	if l == nil {
		l = rate.NewLimiter(k.rule.Rate, k.rule.Burst)
		k.byKey[key] = l
	}
	return l
}
