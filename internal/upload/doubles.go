package upload

// Chunks that several users have uploaded. A chunk lies in the pack of the first of them; doubles records who else has
// uploaded it. A user who asks which chunks are missing must not learn what others have, so a chunk is there only for
// those who have shown that they have it.

import "sync"

// maxDoubles bounds the entries of one generation, of about 60 bytes each. The older generation is forgotten when the
// newer one is full. Then, and after a restart, a user uploads such a chunk once more.
const maxDoubles = 1 << 17

// doubles remembers which users have uploaded chunks that the store had already. It is safe for concurrent use.
type doubles struct {
	mu         sync.Mutex
	newer, old map[double]struct{} // guarded by mu
}

type double struct {
	user  userID
	chunk Hash
}

func (d *doubles) note(user userID, chunk Hash) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.newer) >= maxDoubles {
		d.newer, d.old = nil, d.newer
	}
	if d.newer == nil {
		d.newer = map[double]struct{}{}
	}
	d.newer[double{user, chunk}] = struct{}{}
}

func (d *doubles) has(user userID, chunk Hash) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := double{user, chunk}
	_, is := d.newer[x]
	if !is {
		_, is = d.old[x]
	}
	return is
}
