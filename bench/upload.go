package main

// How fast files get to a task: from a client through its daemon to another
// host's, beside a plain copy of the same files.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/job"
)

// upload sends 500 MB of new files to a task on each of two other hosts, and then
// the same once more.
func (c *cluster) upload(ctx context.Context, files int) error {
	const bytes = 500_000_000
	size := bytes / files
	total := float64(files*size) / 1e6
	fmt.Printf("## upload of %d files, %.0f MB\n", files, total)
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	data := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(time.Now().UnixNano())})
	for i := range files {
		_, _ = rng.Read(data)
		at := filepath.Join(tree, fmt.Sprintf("d%d", i%100), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, data, 0o644); err != nil {
			return err
		}
	}
	if err := exec.CommandContext(ctx, "sync").Run(); err != nil {
		return err
	}
	say := func(what string, took time.Duration, more string) {
		fmt.Printf("   %-44s %6.2f s, %4.0f MB/s%s\n", what, took.Seconds(), total/took.Seconds(), more)
	}
	for _, b := range []struct{ what, node string }{
		{"client, daemon, worker, start: new", "dev2"},
		{"a second worker: new there", "dev3"},
		{"the second worker again: nothing new", "dev3"},
	} {
		sent := int64(0)
		took, used, err := c.timed(func() (err error) {
			sent, err = c.runWith(ctx, tree, b.node)
			return err
		})
		if err != nil {
			return err
		}
		say(b.what, took, fmt.Sprintf(", %d bytes sent by the client, CPU of daemons %.2f s", sent, used.sum().Seconds()))
	}
	began := time.Now()
	if err := exec.CommandContext(ctx, "cp", "-r", tree, filepath.Join(dir, "copy")).Run(); err != nil {
		return err
	}
	say("raw: cp -r of the tree, once", time.Since(began), "")
	began = time.Now()
	if err := exec.CommandContext(ctx, "sync").Run(); err != nil {
		return err
	}
	say("raw: sync after it", time.Since(began), "")
	took, err := oneFile(filepath.Join(dir, "one"), data, files)
	if err != nil {
		return err
	}
	say("raw: the same bytes into one file, fdatasync", took, "")
	fmt.Println()
	return nil
}

// oneFile is how long the disk takes for n times data without all else.
func oneFile(path string, data []byte, n int) (time.Duration, error) {
	began := time.Now()
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for range n {
		if _, err := f.Write(data); err != nil {
			return 0, err
		}
	}
	err = unix.Fdatasync(int(f.Fd()))
	return time.Since(began), err
}

// runWith uploads a tree at the first daemon and runs a task with it on a node.
func (c *cluster) runWith(ctx context.Context, tree, node string) (sent int64, err error) {
	sources, err := blob.Scan(tree, []string{"."}, 1<<40)
	if err != nil {
		return 0, err
	}
	h, p, err := blob.Send(ctx, c.clients[0], sources, nil)
	if err != nil {
		return 0, err
	}
	s := command("/bin/true")
	s.Tree, s.NodeList = h.String(), []string{node}
	j, err := c.clients[0].Submit(ctx, s, "")
	if err != nil {
		return 0, err
	}
	ended, err := c.clients[0].Wait(ctx, []job.ID{j.ID}, nil)
	if err == nil && ended[0].State != job.Succeeded {
		err = fmt.Errorf("the task with the files is %s: %s", ended[0].State, ended[0].Reason)
	}
	return p.Sent, err
}
