package door

// The code that a browser shows, once, to get the secret.

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"
)

const (
	// CodeLife is how long a code is valid.
	CodeLife = time.Minute
	// maxWrong is the number of wrong codes after which the right one becomes void. Nobody can guess a code of 130 bits; the
	// bound serves to tell the user that somebody tries.
	maxWrong = 10
)

// code holds the one valid code, if there is one. The zero value has none. It is safe for concurrent use.
type code struct {
	mu     sync.Mutex
	digest [sha256.Size]byte // guarded by mu
	until  time.Time         // guarded by mu: zero if no code is valid
	wrong  int               // guarded by mu: wrong codes that were tried since it was made
}

// fresh makes a code. The previous code becomes void.
func (c *code) fresh() string {
	text := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.digest, c.until, c.wrong = sha256.Sum256([]byte(text)), time.Now().Add(CodeLife), 0
	return text
}

// use reports whether text is the valid code, which then becomes void. void is true if this was one wrong code too many.
func (c *code) use(text string) (good, void bool) {
	digest := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.until) {
		return false, false // no code is valid, so there is nothing to guess
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
