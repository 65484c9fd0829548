package docker

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/job"
)

// The notes of a host that always has a container do not grow for ever, and still name its containers.
func TestNotesOfABusyHostAreBounded(t *testing.T) {
	n := &notes{path: filepath.Join(t.TempDir(), "boxes")}
	stays := note{ID: "stays", Host: "h", PID: 7, Ticks: 9, Boot: "x"}
	for _, line := range []note{{ID: "stays", Host: "h"}, {ID: "stays", PID: 7, Ticks: 9, Boot: "x"}} {
		if err := n.add(line); err != nil {
			t.Fatal(err)
		}
	}
	most := int64(0)
	for i := range 3 * maxNotes {
		id := strconv.Itoa(i)
		if err := n.add(note{ID: id, Host: "h"}); err != nil {
			t.Fatal(err)
		}
		n.removed(id)
		if i%100 == 0 {
			info, err := os.Stat(n.path)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, info.Size())
		}
	}
	if most > 100*maxNotes {
		t.Errorf("the file had %d bytes, for one container that lives, want at most %v", most, 100*maxNotes)
	}
	if all, err := readNotes(n.path); err != nil || len(all) != 1 || all["stays"] != stays {
		t.Errorf("notes %+v, %v, want only %+v", all, err, stays)
	}
}

// A line that was written in part, because the disk was full, does not spoil the next one.
func TestPartialNoteDoesNotSpoilTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boxes")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	n := &notes{path: path, file: full, live: map[string]note{}}
	if n.add(note{ID: "lost", Host: "h"}) == nil {
		t.Fatal("a full disk accepts a line")
	}
	full.Close()
	if err := os.WriteFile(path, []byte(`{"id":"lo`), 0o600); err != nil { // the part of it that reached the disk
		t.Fatal(err)
	}
	n.file = nil
	if err := n.add(note{ID: "kept", Host: "h"}); err != nil {
		t.Fatal(err)
	}
	if all, err := readNotes(path); err != nil || len(all) != 1 || all["kept"].Host != "h" {
		t.Errorf("notes %+v, %v, want kept", all, err)
	}
}

// An engine that does not answer delays no other query: a cancelled one returns at once.
func TestSilentEngineDelaysNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path) // accepts and does not answer
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := connect("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	engine := &link{Client: c}
	first, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { _, err := engine.learn(first); asked <- err }()
	if _, err := l.Accept(); err != nil { // the first query
		t.Fatal(err)
	}
	second, cancelled := context.WithCancel(t.Context())
	cancelled()
	done := make(chan error, 1)
	go func() { _, err := engine.learn(second); done <- err }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a silent engine reported its facts")
		}
	case <-time.After(askWithin / 2):
		t.Error("a cancelled query waits for the engine's answer to another")
	}
	cancel()
	if <-asked == nil {
		t.Error("a silent engine reported its facts")
	}
}

// A task whose engine accepts connections and does not answer has not failed by itself: it can run on another node.
func TestSilentEngineIsNotTheTasksFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(client.WithDialContext(func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go io.Copy(io.Discard, there) // until the client closes the connection
			return here, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		_, err = (&link{Client: c}).learn(t.Context())
		if took := time.Since(began); took != askWithin {
			t.Errorf("a silent engine was given up after %s, want %v", took, askWithin)
		}
		if x := notStarted(err); x.State != job.NodeFail || !strings.Contains(x.Reason, "does not answer") {
			t.Errorf(`the task is %s: %s, want %v and "does not answer" in it`, x.State, x.Reason, job.NodeFail)
		}
	})
}
