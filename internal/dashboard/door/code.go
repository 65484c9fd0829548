package door

// The code: what a browser shows to get the secret, once.

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"
)

const (
	// CodeLife is how long a code is good.
	CodeLife = time.Minute
	// maxWrong is how many wrong codes are taken before the right one is void. Nobody can guess one of 130 bits; this is to
	// tell the user that somebody tries.
	maxWrong = 10
)

// code is the one code that is good now, if there is one. The zero value has none. It is safe for concurrent use.
type code struct {
	mu     sync.Mutex
	digest [sha256.Size]byte // guarded by mu
	until  time.Time         // guarded by mu: zero if none is good
	wrong  int               // guarded by mu: codes that were tried since
}

// fresh makes a code. The one before is void.
func (c *code) fresh() string {
	text := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.digest, c.until, c.wrong = sha256.Sum256([]byte(text)), time.Now().Add(CodeLife), 0
	return text
}

// use reports whether text is the code that is good now, and uses it up. void says that this was one wrong code too many.
func (c *code) use(text string) (good, void bool) {
	digest := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.until) {
		return false, false // none is good: nothing can be learnt by guessing
	}
	if subtle.ConstantTimeCompare(digest[:], c.digest[:]) == 1 {
		c.until = time.Time{}
		return true, false
	}
	if c.wrong++; c.wrong < maxWrong {
		return false, false
	}
	c.until = time.Time{}
	return false, true
}
