package api

// The feed: a stream of JSON lines by which a daemon reports its node and its jobs to a daemon that keeps a view of the
// cluster. See docs/adr, ADR 140.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Bounds of a feed.
const (
	pathFeed     = "/peer/v1/feed"
	maxFeedLine  = 1 << 20                // bytes: a node with its GPUs
	maxFeedJob   = 64 << 10               // bytes of the line about a job
	feedPause    = 200 * time.Millisecond // between two batches under load: rapid changes of one object are merged
	feedAlive    = time.Second            // after this time without a line, an empty one shows that the daemon is alive
	feedBatch    = 256                    // lines that are written together
	maxOperators = 256                    // names in feedHello
	maxCount     = 1 << 30                // of jobs in one state
)

// feedLine is one line. At most one of its fields is set (Older goes with Gone). An empty line is a sign of life.
type feedLine struct {
	Hello    *feedHello    `json:"hello,omitempty"`
	Node     *Node         `json:"node,omitempty"`
	Measured *feedMeasured `json:"measured,omitempty"` // of the node
	Job      *Job          `json:"job,omitempty"`
	Gone     job.ID        `json:"gone,omitempty"` // the job was deleted; with Older, it is only too old for the feed
	Older    bool          `json:"older,omitempty"`
	Totals   *feedTotals   `json:"totals,omitempty"`
	Queue    *QueueInfo    `json:"queue,omitempty"`
	Synced   bool          `json:"synced,omitempty"` // all present jobs were sent once
	Anew     bool          `json:"anew,omitempty"`   // the feed starts again: all present jobs follow
}

// feedHello is the first line. It says who besides a job's user may see the jobs of the daemon. The daemon that receives the
// feed obeys it when it shows these jobs.
type feedHello struct {
	Own       bool     `json:"own,omitempty"` // users see only their own jobs
	Operators []string `json:"operators,omitempty"`
}

// feedTotals has the number of jobs in each state, and the positions in a listing from which on the feed may lack jobs.
type feedTotals struct {
	Jobs  map[job.State]int `json:"jobs"`
	Open  string            `json:"open,omitempty"`  // cursor for jobs that have not ended
	Ended string            `json:"ended,omitempty"` // cursor for jobs that have
}

var errFeed = errors.New("its feed is not one of this version")

// parseFeedLine decodes a line of another daemon and checks its form. It does not check whether the line is about that
// daemon's own node and jobs.
func parseFeedLine(text []byte) (l feedLine, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("%w: %w", errFeed, err)
	}
	things := 0
	for _, there := range []bool{l.Hello != nil, l.Node != nil, l.Measured != nil, l.Job != nil, l.Gone != "", l.Totals != nil, l.Queue != nil, l.Synced, l.Anew} {
		if there {
			things++
		}
	}
	bad := things > 1 ||
		l.Hello != nil && (len(l.Hello.Operators) > maxOperators || slices.ContainsFunc(l.Hello.Operators, func(u string) bool { return !validUser(u) })) ||
		l.Job != nil && (len(text) > maxFeedJob || !validJob(l.Job)) ||
		l.Node != nil && !l.Node.plausible() ||
		l.Measured != nil && !l.Measured.valid() ||
		l.Totals != nil && !l.Totals.valid() ||
		l.Queue != nil && !l.Queue.valid()
	if bad {
		return l, errFeed
	}
	if l.Job != nil { // the reader knows itself how old the line is
		l.Job.Age = 0
	}
	if l.Node != nil {
		l.Node.Age, l.Node.SeenAt = nil, nil
	}
	return l, nil
}

func validJob(j *Job) bool {
	_, err := job.ParseID(string(j.ID))
	return err == nil && slices.Contains(job.States(), j.State) && len(j.Tasks) <= briefTasks && j.Spec == nil && len(j.Dependencies) == 0
}

func (t *feedTotals) valid() bool {
	_, err1 := parseCursor(t.Open)
	_, err2 := parseCursor(t.Ended)
	return err1 == nil && err2 == nil && plausibleCounts(t.Jobs)
}

// encodeLine encodes a line, with the newline at its end.
func encodeLine(l feedLine) []byte {
	text, err := json.Marshal(l)
	if err != nil { // every line can be encoded
		return []byte("\n")
	}
	return append(text, '\n')
}

func cursorOf(p job.Position) string {
	if p.ID == "" {
		return ""
	}
	return cursor(p)
}
