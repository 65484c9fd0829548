package main

// Containers that muster starts, compared with `docker run` of the same image.

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhq/muster/api"
)

const benchImage = "muster-bench/busy:1"

// docker measures containers in turn: muster from the call of submit to the start of the container's process, and
// `docker run -d` from its call to its return.
func docker(ctx context.Context, program string, r *report) error {
	const runs = 30
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	if err := importImage(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "docker is left out, as there is no Docker engine to use: %v\n", err)
		return nil
	}
	_, client, stop, err := oneDaemon(ctx, program, "--docker-host", host)
	if err != nil {
		return err
	}
	defer stop()
	var ours, theirs []time.Duration
	for i := range runs + 1 {
		began := time.Now()
		out, err := exec.CommandContext(ctx, "docker", "run", "-d", benchImage, "/bin/busybox", "true").Output()
		took := time.Since(began)
		if err != nil {
			return fmt.Errorf("docker run: %w", err)
		}
		if err := exec.CommandContext(ctx, "docker", "rm", "-f", string(bytes.TrimSpace(out))).Run(); err != nil {
			return fmt.Errorf("docker rm: %w", err)
		}
		spec := command("/bin/busybox", "true")
		spec.Image = benchImage
		began = time.Now()
		j, err := finish(ctx, client, spec)
		if err != nil {
			return err
		}
		if i > 0 { // the first also starts the runner of containers
			ours, theirs = append(ours, j.StartedAt.Sub(began)), append(theirs, took)
		}
	}
	times(r.value, "docker", ours, 0.5, 0.9)
	times(r.raw, "docker", theirs, 0.5, 0.9)
	return nil
}

// importImage gives the engine an image of a static busybox.
func importImage(ctx context.Context) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "docker", "import", "-", benchImage)
	cmd.Stdin = &b
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("docker import: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// oneDaemon runs a daemon with the flags until stop is called. Its socket is in a directory of its own.
func oneDaemon(ctx context.Context, program string, flags ...string) (socket string, client *api.Client, stop func(), err error) {
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return "", nil, nil, err
	}
	socket = filepath.Join(dir, "s")
	cmd := exec.CommandContext(ctx, program, append([]string{
		"daemon", "--config", os.DevNull, "--data-dir", filepath.Join(dir, "data"), "--socket", socket, "--gpus", "none", "--allow-root",
		"--listen", "/ip4/127.0.0.1/tcp/0",
	}, flags...)...)
	if err := cmd.Start(); err != nil {
		return "", nil, nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = exec.CommandContext(context.WithoutCancel(ctx), "pkill", "-TERM", "-f", filepath.Join(dir, "data")).Run() // the runners of this run alone
		wait(ctx, time.Second)
		_ = os.RemoveAll(dir)
	}
	if client, err = api.NewClient(api.ClientConfig{Socket: socket}); err != nil {
		stop()
		return "", nil, nil, err
	}
	for range 100 {
		if _, err = client.Daemon(ctx, false); err == nil {
			wait(ctx, time.Second) // its journal has a leader by then
			return socket, client, stop, nil
		}
		wait(ctx, 100*time.Millisecond)
	}
	stop()
	return "", nil, nil, fmt.Errorf("muster daemon did not start: %w", err)
}
