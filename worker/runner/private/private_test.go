package private

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onHost returns a Mounter with the usual paths.
func onHost() *Mounter {
	m := &Mounter{}
	m.places[tmp] = place{path: "/disk/tmp", names: []string{"/tmp", "/disk/tmp"}}
	m.places[shm] = place{path: "/dev/shm", names: []string{"/dev/shm"}}
	return m
}

func TestWhichFilesOfTheHostStayVisible(t *testing.T) {
	for _, tt := range []struct {
		path, word string
		tmp, shm   string // names
		shared     string
	}{
		{path: "/tmp/me/run", tmp: "me!"},
		{path: "/tmp//me/../you/", tmp: "you!"},
		{path: "/disk/tmp/me", tmp: "me!"},
		{path: "/tmp", shared: "/tmp"},
		{path: "/tmp/", shared: "/tmp"},
		{path: "/dev/shm", shared: "/dev/shm"},
		{path: "/dev/shm/me/x", shm: "me!"},
		{path: "/tmpfs/me"},
		{path: "/var/tmp/me"},
		{path: "/home/me"},
		{path: ""},
		{word: "SSH_AUTH_SOCK=/tmp/ssh-XYZ/agent.1", tmp: "ssh-XYZ"},
		{word: "TMUX=/tmp/tmux-1000/default,1234,0", tmp: "tmux-1000"},
		{word: "DBUS_SESSION_BUS_ADDRESS=unix:path=/tmp/dbus-a,guid=1", tmp: "dbus-a"},
		{word: "PATH=/usr/bin:/tmp/me/bin:/disk/tmp/you:/bin", tmp: "me you"},
		{word: "--data=/tmp//me/data", tmp: "me"},
		{word: "/tmp/x", tmp: "x"},
		{word: "X=/tmp/me/tmp/you", tmp: "me"},
		{word: "X=/dev/shm/me", shm: "me"},
		{word: "/a/tmp/tmp/x"},
		{word: "/a/tmp/x"},
		{word: "TMPDIR=/tmp"},
		{word: "TMPDIR=/tmp/"},
		{word: "/tmp/../etc"},
		{word: "/tmp/./x"},
		{word: "/tmpx/a"},
		{word: "echo >/tmp/x"},
		{word: "echo > /tmp/x"},
		{word: ""},
	} {
		k := onHost().Keep(1000)
		k.Path(tt.path)
		k.Words([]string{tt.word})
		var got [places]string
		for i, names := range k.names {
			var all []string
			for _, n := range names {
				if n.whoever {
					n.name += "!"
				}
				if n.name != displays {
					all = append(all, n.name)
				}
			}
			got[i] = strings.Join(all, " ")
		}
		shared := ""
		for i, s := range k.shared {
			if s {
				shared += paths[i]
			}
		}
		if got[tmp] != tt.tmp || got[shm] != tt.shm || shared != tt.shared {
			t.Errorf("path %q, word %q: %q in /tmp, %q in /dev/shm, shared: %s, want %v, %v and %v", tt.path, tt.word, got[tmp], got[shm], shared, tt.tmp, tt.shm, tt.shared)
		}
	}
}

// A task that names more files than can be kept shares the directory.
func TestDirectoryIsSharedForTooManyNames(t *testing.T) {
	k := onHost().Keep(1000)
	for i := range maxKept {
		k.Words([]string{"/tmp/" + strings.Repeat("x", i+1), "/tmp/x"})
	}
	if len(k.names[tmp]) != maxKept || !k.shared[tmp] || k.shared[shm] {
		t.Errorf("%d names, shared: %v, want the maximum of names and /tmp shared only", len(k.names[tmp]), k.shared)
	}
}

// outside returns a directory that is neither in /tmp nor in /dev/shm.
func outside(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "muster-test-") //nolint:usetesting // t.TempDir is in /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestDataDirectoryInTmpIsRefused(t *testing.T) {
	if _, err := New(outside(t)); err != nil {
		t.Errorf("below /var/tmp: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "muster-test-") //nolint:usetesting // t.TempDir may be elsewhere
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	link := filepath.Join(outside(t), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		if _, err := New(path); err == nil || !strings.Contains(err.Error(), "the data directory lies in ") {
			t.Errorf(`%s: %v, want an error and "the data directory lies in " in it`, path, err)
		}
	}
}

// inside calls f on a thread with mounts of its own, like those of a task.
func inside(t testing.TB, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	done := make(chan string)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with this goroutine
		why := ""
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			why = err.Error()
		} else if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			why = err.Error()
		} else {
			f()
		}
		done <- why
	}()
	if why := <-done; why != "" {
		t.Skip("no private mounts here:", why)
	}
}

// names lists a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

// on makes files in a directory of the host for the test, and returns their names below it.
func on(t *testing.T, place string) (mine, theirs, file, socket, link string) {
	t.Helper()
	base, err := os.MkdirTemp(place, "muster-test-") //nolint:usetesting // it must be there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, end := range []string{"", "-theirs", "-file", "-socket", "-link"} {
			_ = os.RemoveAll(base + end)
		}
	})
	if err := os.Mkdir(base+"-theirs", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(base), base+"-link"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{base + "/in", base + "-theirs/in", base + "-file"} {
		if err := os.WriteFile(path, []byte("host"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", base+"-socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	for _, end := range []string{"", "-file", "-socket", "-link"} {
		if os.Geteuid() == 0 {
			if err := os.Lchown(base+end, 4711, 4711); err != nil {
				t.Fatal(err)
			}
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(base+"-theirs", 4712, 4712); err != nil {
			t.Fatal(err)
		}
	}
	return base, base + "-theirs", base + "-file", base + "-socket", base + "-link"
}

func TestTaskHasPrivateDirectories(t *testing.T) {
	for _, place := range paths {
		t.Run(filepath.Base(place), func(t *testing.T) {
			mine, theirs, file, socket, link := on(t, place)
			own := outside(t)
			m, err := New(outside(t))
			if err != nil {
				t.Fatal(err)
			}
			var made []string
			inside(t, func() {
				k := m.Keep(4711)
				k.Words([]string{"A=" + mine, theirs, file, socket, link, place + "/muster-no-such"})
				made, err = k.Mount(own, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				want := []string{filepath.Base(mine), filepath.Base(file), filepath.Base(link), filepath.Base(socket)}
				slices.Sort(want)
				if got := slices.DeleteFunc(names(t, place), func(n string) bool { return n == displays }); !slices.Equal(got, want) {
					t.Errorf("the task sees %q, want %q", got, want)
				}
				for _, path := range []string{mine + "/in", link + "/in", file} {
					if b, err := os.ReadFile(path); string(b) != "host" {
						t.Errorf(`%s: %q, %v, want "host"`, path, b, err)
					}
				}
				if conn, err := net.Dial("unix", socket); err != nil {
					t.Error(err)
				} else {
					_ = conn.Close()
				}
				for _, at := range []string{place, mine} {
					if err := os.WriteFile(at+"/muster-written", []byte("task"), 0o600); err != nil {
						t.Error(err)
					}
				}
				var fs unix.Statfs_t
				if err := unix.Statfs("/dev/shm", &fs); err != nil || int64(fs.Blocks)*fs.Bsize != 1<<20 || fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0 {
					t.Errorf("/dev/shm: %+v, %v, want 1 MiB with nosuid and nodev", fs, err)
				}
				if err := unix.Statfs("/tmp", &fs); err != nil || fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0 {
					t.Errorf("/tmp: %+v, %v, want nosuid and nodev", fs, err)
				}
			})
			if _, err := os.Lstat(place + "/muster-written"); err == nil {
				t.Error("a file that the task wrote is on the host")
			}
			if b, err := os.ReadFile(mine + "/muster-written"); string(b) != "task" {
				t.Errorf(`what the task wrote in a directory that was kept: %q, %v, want "task"`, b, err)
			}
			if err := Clear(own, made); err != nil {
				t.Error(err)
			}
			want := []string(nil)
			if place == "/tmp" {
				want = []string{"muster-written"}
			}
			if got := names(t, own); !slices.Equal(got, want) {
				t.Errorf("left: %q, want %q", got, want)
			}
			if b, err := os.ReadFile(mine + "/in"); string(b) != "host" {
				t.Errorf(`the host's file: %q, %v, want "host"`, b, err)
			}
		})
	}
}

// If a mount fails, the task gets the directories of the host. What was made for it can be cleared. Clearing removes
// nothing of the host, even where its directories are mounted.
func TestFailedMountLeavesTheDirectoriesOfTheHost(t *testing.T) {
	mine, _, file, _, _ := on(t, "/tmp")
	own := outside(t)
	m, err := New(outside(t))
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	inside(t, func() {
		k := m.Keep(4711)
		k.Words([]string{mine, file})
		if made, err = k.Mount(own, 0); err != nil {
			t.Error(err)
		}
		if err := Clear(own, made); err == nil {
			t.Error("mount points were removed")
		}
		if b, err := os.ReadFile(mine + "/in"); string(b) != "host" {
			t.Errorf(`the host's file: %q, %v, want "host"`, b, err)
		}
	})
	if err := Clear(own, made); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(file); string(b) != "host" {
		t.Errorf(`the host's file: %q, %v, want "host"`, b, err)
	}
	inside(t, func() {
		k := m.Keep(4711)
		k.Words([]string{mine})
		if made, err := k.Mount(filepath.Join(own, "missing"), 0); err == nil || len(made) > 0 {
			t.Errorf("mounted a directory that does not exist: %q, %v, want an error and none", made, err)
		}
		m.places[shm].path = filepath.Join(own, "missing") // it fails after /tmp was mounted
		k = m.Keep(4711)
		k.Words([]string{mine})
		made, err := k.Mount(own, 0)
		if err == nil || !slices.Contains(made, filepath.Base(mine)) {
			t.Errorf("%q, %v, want an error and %v among them", made, err, filepath.Base(mine))
		}
		if !slices.Contains(names(t, "/tmp"), filepath.Base(file)) {
			t.Error("the task does not have the /tmp of the host")
		}
	})
}

// BenchmarkMount measures what the directories of a task add to its start.
func BenchmarkMount(b *testing.B) {
	dir, err := os.MkdirTemp("/var/tmp", "muster-test-") //nolint:usetesting // t.TempDir is in /tmp
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := New(dir)
	if err != nil {
		b.Fatal(err)
	}
	env := append(os.Environ(), "SSH_AUTH_SOCK=/tmp/muster-no-such/agent")
	inside(b, func() {
		spent := time.Duration(0)
		for b.Loop() {
			begun := time.Now()
			k := m.Keep(os.Geteuid())
			k.Words(env)
			if _, err := k.Mount(dir, 1<<30); err != nil {
				b.Error(err)
				return
			}
			spent += time.Since(begun)
			for _, path := range paths { // otherwise the next mounts would lie over these
				if err := unix.Unmount(path, 0); err != nil {
					b.Error(err)
					return
				}
			}
		}
		b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "mount-ns/op")
	})
}
