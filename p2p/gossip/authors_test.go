package gossip

import (
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// One member announces a hundred times a second for hours. It takes the place of one author, and others are heard as before.
func TestAuthorsAreBoundedByMember(t *testing.T) {
	h, now := newAuthors(), time.Unix(0, 0)
	passed, heard, seq := 0, 0, uint64(0)
	const seconds = 3 * 3600
	for s := range seconds {
		for range 100 {
			now = now.Add(10 * time.Millisecond)
			if seq++; h.accept("mallory", seq, now) {
				passed++
			}
		}
		if s%10 == 0 && h.accept(job.Peer("honest"), uint64(s+1), now) {
			heard++
		}
	}
	if len(h.last) != 2 || passed > seconds*perSecond+burst || heard != seconds/10 {
		t.Errorf("%d authors; %d announcements of mallory passed, and %d of %d of the other", len(h.last), passed, heard, seconds/10)
	}
}
