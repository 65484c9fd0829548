package runner

// The exit journal: how tasks exited, on disk before the daemon is told.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// segmentBytes is the size at which a new segment begins: some 800 exits, which are read quickly after a restart.
const segmentBytes = 256 << 10

// journal appends exits to the segments of one runner.
type journal struct {
	dir  protocol.Dir
	at   protocol.Segment
	file *os.File // nil: the next save begins a segment
	size int64
}

// openJournal continues after the segments that an earlier runner of the same generation has written.
func openJournal(dir protocol.Dir, generation int) (*journal, error) {
	j := &journal{dir: dir, at: protocol.Segment{Runner: generation}}
	all, err := dir.Segments()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Runner == generation {
			j.at.Number = max(j.at.Number, s.Number)
		}
	}
	return j, nil
}

// save appends the exits of a round, syncs them once, and sets each task's segment. After an error nothing of the
// round counts as written, and the next round goes to a new segment.
func (j *journal) save(round []*task) error {
	if j.file == nil || j.size >= segmentBytes {
		if err := j.next(); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, t := range round {
		if t.out != nil {
			t.record.Exit.Tail = t.out.Finish()
			t.silent, t.out = t.out.Silent(), nil
		}
		if err := enc.Encode(&t.record); err != nil {
			return fmt.Errorf("runner: encode end of %s: %w", t.name, err)
		}
		t.segment = j.at.Number
	}
	n, err := j.file.Write(b.Bytes())
	if err == nil {
		err = unix.Fdatasync(int(j.file.Fd()))
	}
	j.size += int64(n)
	if err != nil {
		j.close()
		return fmt.Errorf("runner: save ends to %s: %w", j.dir.Journal(j.at), err)
	}
	return nil
}

// next begins a segment. The segment's name is on disk before any exit in it counts.
func (j *journal) next() error {
	j.close()
	j.at.Number++
	f, err := os.OpenFile(j.dir.Journal(j.at), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("runner: begin a segment of ends: %w", err)
	}
	j.file, j.size = f, 0
	if err := syncDir(string(j.dir)); err != nil {
		j.close()
		return err
	}
	return nil
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close() // all that counts is synced
		j.file = nil
	}
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("runner: sync: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("runner: sync %s: %w", path, err)
	}
	return nil
}
