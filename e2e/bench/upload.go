package main

// How fast files get to a task: from a client through its daemon to another host, compared with plain copies of the
// same files.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/upload"
)

// uploading sends 500 MB of new files to a task on each of two other hosts, then once more to the second. The figures are
// NAME, NAME-cpu and NAME-sent.
func uploading(name string, files int) func(*cluster, context.Context, *report) error {
	return func(c *cluster, ctx context.Context, r *report) error { return c.upload(ctx, r, name, files) }
}

func (c *cluster) upload(ctx context.Context, r *report, name string, files int) error {
	const bytes = 500_000_000
	size := bytes / files
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
	for _, b := range []struct{ label, node string }{
		{"new", "dev2"},
		{"a second worker", "dev3"},
		{"nothing new", "dev3"},
	} {
		sent := int64(0)
		took, used, err := c.timed(func() (err error) {
			sent, err = c.runWith(ctx, tree, b.node)
			return err
		})
		if err != nil {
			return err
		}
		r.value(name, b.label, mbPerSecond(bytes, took))
		r.value(name+"-cpu", b.label, used.cpu().Seconds())
		r.value(name+"-sent", b.label, float64(sent)/1e6)
	}
	began := time.Now()
	if err := exec.CommandContext(ctx, "cp", "-r", tree, filepath.Join(dir, "copy")).Run(); err != nil {
		return err
	}
	copied := time.Since(began)
	if err := exec.CommandContext(ctx, "sync").Run(); err != nil {
		return err
	}
	synced := time.Since(began)
	took, err := oneFile(filepath.Join(dir, "one"), data, files)
	if err != nil {
		return err
	}
	r.raw(name, "one file and fdatasync", mbPerSecond(bytes, took))
	r.raw(name, "cp -r once", mbPerSecond(bytes, copied))
	r.raw(name, "cp -r once and sync", mbPerSecond(bytes, synced))
	return nil
}

// oneFile is how long the disk takes for n times data in one file, with one sync.
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
	sources, err := upload.Scan(tree, []string{"."}, 1<<40)
	if err != nil {
		return 0, err
	}
	h, p, err := upload.Send(ctx, c.clients[0], sources, nil)
	if err != nil {
		return 0, err
	}
	s := command("/bin/true")
	s.Tree, s.NodeList = h.String(), []string{node}
	_, err = finish(ctx, c.clients[0], s)
	return p.Sent, err
}
