package audit

// Reading the log: the newest entries first, without loading the files whole.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Query selects entries; the zero value selects none.
type Query struct {
	Since  time.Time
	User   string // empty: all users
	Action Action // empty: all actions
	Limit  int
}

func (q Query) selects(e *Entry) bool {
	return !e.Time.Before(q.Since) && (q.User == "" || e.User == q.User) && (q.Action == "" || e.Action == q.Action)
}

// marks returns texts that every line selected by q contains. So most lines need not be decoded.
func (q Query) marks() [][]byte {
	var all [][]byte
	for key, text := range map[string]string{"user": q.User, "action": string(q.Action)} {
		if text == "" {
			continue
		}
		var b bytes.Buffer
		enc := newEncoder(&b)
		_ = enc.Encode(text) // text can be encoded
		all = append(all, append([]byte(`"`+key+`":`), bytes.TrimSpace(b.Bytes())...))
	}
	return all
}

const (
	readBytes = 64 << 10 // of a file at a time
	scanWait  = 2 * time.Second
	maxLine   = 16 << 10 // bytes of a line that is read; those that this package writes have less
)

// Find returns the newest entries that q selects, the newest first. It waits for a moment while too many others search,
// and then returns context.DeadlineExceeded.
func (l *Log) Find(ctx context.Context, q Query) ([]Entry, error) {
	turn, cancel := context.WithTimeout(ctx, scanWait)
	defer cancel()
	select {
	case l.scans <- struct{}{}:
	case <-turn.Done():
		return nil, fmt.Errorf("audit: others search the log: %w", turn.Err())
	}
	defer func() { <-l.scans }()
	q.User = Clean(q.User, maxName) // as it is written
	l.flush(false)
	all, err := l.files.open()
	defer func() {
		for _, f := range all {
			f.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	found := []Entry{}
	for _, f := range all {
		if len(found) >= q.Limit {
			break
		}
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("audit: read: %w", err)
		}
		if info.ModTime().Before(q.Since) {
			continue
		}
		if found, err = q.search(ctx, f, info.Size(), found); err != nil {
			return nil, fmt.Errorf("audit: read %s: %w", info.Name(), err)
		}
	}
	return found, nil
}

// search adds the entries of one file to those that were found.
func (q Query) search(ctx context.Context, f io.ReaderAt, size int64, found []Entry) ([]Entry, error) {
	marks := q.marks()
	err := backwards(ctx, f, size, func(line []byte) bool {
		for _, m := range marks {
			if !bytes.Contains(line, m) {
				return true
			}
		}
		e, ok := parse(line)
		if ok && q.selects(&e) {
			found = append(found, e)
		}
		return len(found) < q.Limit
	})
	return found, err
}

// parse reads a line. ok is false if the line is no entry, for example because a crash cut it off.
func parse(line []byte) (e Entry, ok bool) {
	err := json.Unmarshal(line, &e)
	return e, err == nil && e.Valid()
}

// backwards calls each with every line of a file, the last first, until it returns false. Lines that are too long are
// left out.
func backwards(ctx context.Context, f io.ReaderAt, size int64, each func(line []byte) bool) error {
	var rest []byte // the start of the block that was read, up to its first line end
	long := false   // the line of which rest was a part is too long
	for end := size; end > 0 && ctx.Err() == nil; {
		n := min(readBytes, end)
		block := make([]byte, n, n+int64(len(rest)))
		if _, err := f.ReadAt(block, end-n); err != nil {
			return err
		}
		end -= n
		block = append(block, rest...)
		for i := bytes.LastIndexByte(block, '\n'); i >= 0; i = bytes.LastIndexByte(block, '\n') {
			line := block[i+1:]
			block = block[:i]
			if !long && len(line) > 0 && len(line) <= maxLine && !each(line) {
				return nil
			}
			long = false
		}
		rest = block
		if len(rest) > maxLine {
			rest, long = nil, true
		}
	}
	if len(rest) > 0 && !long {
		each(rest)
	}
	return ctx.Err()
}

var _ io.ReaderAt = (*os.File)(nil)
