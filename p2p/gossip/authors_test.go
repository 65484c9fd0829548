package gossip

import (
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// One member announces a hundred times a second for hours. It counts as one author, and others are heard as before.
func TestFloodingMemberIsOneBoundedAuthor(t *testing.T) {
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
		t.Errorf("got %d authors, want 2; %d announcements of mallory passed, want at most %d; %d of the other passed, want %d", len(h.last), passed, seconds*perSecond+burst, heard, seconds/10)
	}
}
