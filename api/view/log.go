package view

// The log: the newest version of each object, in the order of the changes.

import (
	"bytes"
	"container/list"
	"sync"
)

// maxGone bounds the removals that a log remembers. A reader that has not read a forgotten removal must start again.
const maxGone = 4096

// Log keeps the newest line about each object. A reader asks for the lines that changed since the last line that it has
// read. So a slow reader skips outdated lines and needs no buffer.
type Log struct {
	mu    sync.Mutex
	lines map[string]*list.Element // guarded by mu
	order list.List                // guarded by mu: of *Line, the oldest change first
	gone  list.List                // guarded by mu: of *Line, removals only
	last  uint64                   // guarded by mu: number of the last change
	lost  uint64                   // guarded by mu: number of the last removal that is forgotten
	bell  chan struct{}            // guarded by mu: closed at the next change
}

// Line is the newest text about one object.
type Line struct {
	Key    string
	Text   []byte
	change uint64
	gone   *list.Element // nil unless the object was removed
}

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{lines: map[string]*list.Element{}, bell: make(chan struct{})}
}

// Set replaces the line about an object. Setting the same text again is no change.
func (l *Log) Set(key string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.lines[key]; e != nil {
		if old := lineOf(e); old.gone == nil && bytes.Equal(old.Text, text) {
			return
		}
	}
	l.addLocked(&Line{Key: key, Text: text})
}

// Remove replaces the line about an object by text, which says that the object is gone. Readers that begin later do not
// get this line.
func (l *Log) Remove(key string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.lines[key]; e == nil || lineOf(e).gone != nil {
		return
	}
	line := &Line{Key: key, Text: text}
	l.addLocked(line)
	line.gone = l.gone.PushBack(line)
	if l.gone.Len() <= maxGone {
		return
	}
	first, _ := l.gone.Front().Value.(*Line)
	l.lost = first.change
	l.forgetLocked(l.lines[first.Key])
}

func (l *Log) addLocked(line *Line) {
	if e := l.lines[line.Key]; e != nil {
		l.forgetLocked(e)
	}
	l.last++
	line.change = l.last
	l.lines[line.Key] = l.order.PushBack(line)
	close(l.bell)
	l.bell = make(chan struct{})
}

func (l *Log) forgetLocked(e *list.Element) {
	line := lineOf(e)
	if line.gone != nil {
		l.gone.Remove(line.gone)
	}
	l.order.Remove(e)
	delete(l.lines, line.Key)
}

func lineOf(e *list.Element) *Line {
	line, _ := e.Value.(*Line)
	return line
}

// Since returns the lines that changed after the change with the number after, the oldest first, most lines at most. next
// is the number for the next call. 0 is before the first change. If anew is true the reader has missed removals: it must
// forget all lines and start again at 0.
func (l *Log) Since(after uint64, most int) (lines []Line, next uint64, anew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after > 0 && after < l.lost {
		return nil, 0, true
	}
	var from *list.Element
	for e := l.order.Back(); e != nil && lineOf(e).change > after; e = e.Prev() {
		from = e
	}
	next = after
	for e := from; e != nil && len(lines) < most; e = e.Next() {
		line := lineOf(e)
		next = line.change
		if after > 0 || line.gone == nil {
			lines = append(lines, *line)
		}
	}
	return lines, next, false
}

// Changed returns a channel that is closed at the next change. A reader calls Changed before Since, so that it misses no
// change.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bell
}
