// Package logtest keeps text for tests that read it while others write it: a log, or the output of a stream.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer is a writer that may be read and written by several goroutines. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write adds text. It returns no error.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Lines returns the lines that contain all of these words.
func (b *Buffer) Lines(words ...string) (found []string) {
lines:
	for line := range strings.Lines(b.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}
