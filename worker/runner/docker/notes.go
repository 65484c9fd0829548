package docker

// The notes: a file that lists the containers that a runner has started, for the case that the runner dies.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/renameio/v2"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// note is one line: a container was created, its process exists, or it was removed.
type note struct {
	ID      string `json:"id"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"` // 0: it has no process yet
	Ticks   uint64 `json:"ticks,omitempty"`
	Boot    string `json:"boot,omitempty"`
	Removed bool   `json:"removed,omitempty"`
}

// maxNotes is the number of lines after which the file is rewritten, if most of them are about removed containers.
const maxNotes = 4096

// notes appends to the file. Each line is one write, so that a reader sees it whole or not at all. Nothing is synced:
// a crash of the host ends every container anyway.
type notes struct {
	path  string
	mu    sync.Mutex
	file  *os.File        // guarded by mu
	live  map[string]note // guarded by mu; the newest line of each container that was not removed, by id
	lines int             // guarded by mu; in the file
	torn  bool            // guarded by mu; the last line may not be whole
}

func (n *notes) add(line note) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addLocked(line)
}

func (n *notes) addLocked(line note) error {
	if n.file == nil {
		f, err := os.OpenFile(n.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("docker: open notes: %w", err)
		}
		n.file = f
		if n.live == nil {
			n.live = map[string]note{}
		}
	}
	b, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("docker: note container: %w", err)
	}
	b = append(b, '\n')
	if n.torn {
		b = append([]byte("\n"), b...) // a part of a line must not spoil the next one
	}
	if _, err = n.file.Write(b); err != nil {
		n.torn = true
		return fmt.Errorf("docker: note container: %w", err)
	}
	n.torn = false
	n.lines++
	n.live[line.ID] = line.after(n.live[line.ID])
	return nil
}

// after returns the line, completed by what only the line before it says.
func (l note) after(before note) note {
	l.Host = cmp.Or(l.Host, before.Host)
	return l
}

// removed notes that a container was removed. After the last one it empties the file. A file with many removed containers
// is rewritten.
func (n *notes) removed(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.addLocked(note{ID: id, Removed: true}); err != nil {
		return // a reader of the notes finds that the container does not exist
	}
	delete(n.live, id)
	switch {
	case len(n.live) == 0:
		if n.file.Truncate(0) == nil { // an error only lets the file grow
			n.lines = 0
		}
	case n.lines >= maxNotes && n.lines >= 8*len(n.live):
		n.rewriteLocked()
	}
}

// rewriteLocked replaces the file by one with the live containers alone. After an error the old file stays in use.
func (n *notes) rewriteLocked() {
	n.lines = 0 // an error must not cause an attempt at each removal
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, l := range n.live {
		if lines.Encode(l) != nil {
			return
		}
	}
	if renameio.WriteFile(n.path, b.Bytes(), 0o600) != nil {
		return
	}
	f, err := os.OpenFile(n.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		_ = n.file.Close()
		n.file = nil // the next line opens it
		return
	}
	_ = n.file.Close()
	n.file, n.lines = f, len(n.live)
}

// readNotes returns the newest line of each container that was not removed, by id.
func readNotes(path string) (map[string]note, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("docker: read notes: %w", err)
	}
	defer f.Close()
	all := map[string]note{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line note
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.ID == "" {
			continue
		}
		if line.Removed {
			delete(all, line.ID)
			continue
		}
		all[line.ID] = line.after(all[line.ID])
	}
	return all, nil
}

const (
	// orphanFirst and orphanMost bound the pause before an engine that does not answer is tried again.
	orphanFirst = 50 * time.Millisecond
	orphanMost  = 2 * time.Second
	// removeWithin bounds the removal of one container.
	removeWithin = 30 * time.Second
)

// EndOrphans ends every container that runner n left, and returns when none of them has a process. It needs no engine
// for a container whose process is known. It returns an error only if ctx ends or the notes cannot be read.
func EndOrphans(ctx context.Context, dir string, n int) error {
	left, err := readNotes(protocol.Dir(dir).Containers(n))
	if err != nil {
		return err
	}
	for wait := orphanFirst; ; wait = min(2*wait, orphanMost) {
		for id, o := range left {
			if killNoted(o) || removeNoted(ctx, o) {
				delete(left, id)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if !pause(ctx, wait) {
			return ctx.Err()
		}
	}
}

// killNoted kills a container's first process. It returns true if the container has no process any more.
func killNoted(o note) bool {
	if o.Boot != "" && o.Boot != proc.BootID() {
		return true
	}
	if o.PID == 0 {
		return false
	}
	p, err := find(o.PID)
	if err != nil {
		return false
	}
	defer p.Release() //nolint:errcheck // only closes a descriptor
	if proc.StartTicks(o.PID) != o.Ticks {
		return true // the pid was reused
	}
	if p.kill() != nil {
		return false // no permission: the engine has to do it
	}
	return p.diesWithin(removeWithin)
}

// removeNoted has the engine remove a container, and reports whether it did.
func removeNoted(ctx context.Context, o note) bool {
	c, err := connect(o.Host)
	if err != nil {
		return false
	}
	defer c.Close() //nolint:errcheck // nothing was kept
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	return forceRemove(ctx, c, o.ID) == nil
}

// forceRemove kills and removes a container. It is no error if the container does not exist.
func forceRemove(ctx context.Context, c *client.Client, id string) error {
	_, err := c.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
