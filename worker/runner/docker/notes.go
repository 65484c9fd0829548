package docker

// What a runner has begun, in a file, for whoever finds it dead.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// note is one line: a container was created, its process begins, it is removed.
type note struct {
	ID      string `json:"id"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"` // 0: not begun
	Ticks   uint64 `json:"ticks,omitempty"`
	Boot    string `json:"boot,omitempty"`
	Removed bool   `json:"removed,omitempty"`
}

// notes appends to the file. A line is one write, so that a reader sees it
// whole or not at all; a crash of the host ends every container anyway.
type notes struct {
	path string
	mu   sync.Mutex
	file *os.File        // guarded by mu
	live map[string]bool // guarded by mu
}

func (n *notes) add(line note) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		f, err := os.OpenFile(n.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("docker: open notes: %w", err)
		}
		n.file, n.live = f, map[string]bool{}
	}
	b, err := json.Marshal(line)
	if err == nil {
		_, err = n.file.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("docker: note container: %w", err)
	}
	n.live[line.ID] = true
	return nil
}

// removed notes that nothing is left of a container. With the last one the file
// begins anew.
func (n *notes) removed(id string) {
	if err := n.add(note{ID: id, Removed: true}); err != nil {
		return // who reads it finds no such container
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.live, id)
	if len(n.live) == 0 {
		_ = n.file.Truncate(0) // else it only grows
	}
}

// readNotes gives the newest line of each container that was not removed.
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
		if line.Host == "" {
			line.Host = all[line.ID].Host
		}
		all[line.ID] = line
	}
	return all, nil
}

const (
	// orphanFirst and orphanMost bound the pause before an engine that does not
	// answer is asked again.
	orphanFirst = 50 * time.Millisecond
	orphanMost  = 2 * time.Second
	// removeWithin bounds one removal.
	removeWithin = 30 * time.Second
)

// EndOrphans ends every container that runner n left and returns when no
// process of them is left; only ctx ends it before. One whose process is known
// needs no engine for that.
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

// killNoted kills a container by its process, and says whether none is left.
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
	defer p.Release() //nolint:errcheck // only lets go of it
	if proc.StartTicks(o.PID) != o.Ticks {
		return true // the number is another's
	}
	if p.kill() != nil {
		return false // not ours to kill: the engine has to
	}
	return p.diesWithin(removeWithin)
}

// removeNoted lets the engine remove a container, and says whether it is gone.
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

// forceRemove kills and removes a container; one that is not there is fine.
func forceRemove(ctx context.Context, c *client.Client, id string) error {
	_, err := c.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Guard ends the containers of runner n once that is dead, and returns.
func Guard(ctx context.Context, dir string, n int) error {
	if err := protocol.Dir(dir).AwaitDeath(n); err != nil {
		return err
	}
	return EndOrphans(context.WithoutCancel(ctx), dir, n)
}
