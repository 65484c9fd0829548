package supervisor

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/testkit/exetest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
)

// nobodys returns a rig, and a directory of the user nobody, for whom it runs tasks. No start is abandoned for being
// slow.
func nobodys(t *testing.T) (*rig, string) {
	t.Helper()
	r := rigForOthersIn(t, patientMode)
	own := filepath.Join(r.dir, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return r, own
}

// A program that its user can change gets the same arguments, environment and limits as any other, and its exit code is
// reported.
func TestProgramsOfUsersRunLikeAllOthers(t *testing.T) {
	t.Parallel()
	r, own := nobodys(t)
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"shell": string(sh), "script": "#!/bin/sh\necho $0 $*; exit 5\n", "bare": "echo bare $*; exit 6\n",
		"lost": "#!/no/such/interpreter\n",
	} {
		if err := exetest.Write(filepath.Join(own, name), []byte(text), 0o755); err != nil { //nolint:gosec // users execute it
			t.Fatal(err)
		}
	}
	if err := exetest.Write(filepath.Join(own, "roots"), []byte("#!/bin/sh\n"), 0o744); err != nil { //nolint:gosec // only root executes it
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(own, name) }
	for i, c := range []struct {
		command   []string
		code      int
		out, tail string
	}{
		{[]string{at("shell"), "-c", "cat /proc/$$/comm; echo $0 $1 $SEEN; ulimit -n; exit 4", "a", "b c"}, 4, "shell\na b c yes\n", ""},
		{[]string{at("script"), "x", "y"}, 5, at("script") + " x y\n", ""},
		{[]string{at("bare"), "x"}, 6, "bare x\n", ""},
		{[]string{at("lost")}, 126, "", "muster: cannot execute " + at("lost") + ": its interpreter or loader does not exist\n"},
	} {
		k := r.task(i, c.command...)
		k.User, k.Env = "nobody", append(k.Env, "SEEN=yes")
		e := r.run(k)
		out := r.output(k.Attempt, output.Stdout)
		if e.Code != c.code || !strings.HasPrefix(out, c.out) || e.Tail != c.tail {
			t.Errorf("%v: %+v, output %q, want Code %v, prefix %v and Tail %v", c.command, e, out, c.code, c.out, c.tail)
		}
		if c.code == 4 {
			root := r.shell(100, "ulimit -n")
			r.run(root)
			if want := r.output(root.Attempt, output.Stdout); !strings.HasSuffix(out, "\n"+want) {
				t.Errorf("limit of files: %q, want %q at its end", out, want)
			}
		}
	}
	k := r.task(50, at("roots"))
	k.User = "nobody"
	r.start(k)
	if e := r.expect(driver.Failed).Exit; e.Code != 126 || !strings.HasPrefix(e.Reason, "permission denied: user nobody may not execute "+at("roots")) {
		t.Errorf("%+v, want Code 126 and Reason prefix %v", e, "permission denied: user nobody may not execute "+at("roots"))
	}
}

// A user's file system answers until a program is executed, and then hangs. Only this task hangs.
func TestProgramThatHangsDelaysOnlyItsTask(t *testing.T) {
	t.Parallel()
	r, own := nobodys(t)
	program, abort := fuseProgram(t, own)
	hung := r.task(1, program)
	hung.User = "nobody"
	r.start(hung)
	for i := range 8 { // more than there are spawners
		k := r.task(10+i, "true")
		r.start(k)
	}
	started, ended := false, 0
	for !started || ended < 8 {
		switch e := r.next(); {
		case e.Attempt == hung.Attempt && e.Kind == driver.Started:
			started = true
		case e.Kind == driver.Exited && e.Attempt != hung.Attempt && e.Exit.State == job.Succeeded:
			ended++
		case e.Kind == driver.Starting: // on a slow machine any start may be slow, and reports it
		case e.Kind != driver.Started:
			t.Fatalf("event %+v, want Kind %v", e, driver.Started)
		}
	}
	abort() // a process that waits for an answer of FUSE cannot be killed
	if e := r.expect(driver.Exited).Exit; e.Code != 126 || !strings.HasPrefix(e.Tail, "muster: cannot execute "+program) {
		t.Errorf("%+v, want Code 126 and Tail prefix %v", e, "muster: cannot execute "+program)
	}
}

// The requests to a FUSE server, from linux/fuse.h.
const (
	fuseLookup  = 1
	fuseForget  = 2
	fuseGetattr = 3
	fuseOpen    = 14
	fuseRead    = 15
	fuseStatfs  = 17
	fuseRelease = 18
	fuseFlush   = 25
	fuseInit    = 26
	fuseForgets = 42
)

// fuseProgram returns the path of a program on a FUSE file system. The file system serves the first open, which is the
// check before the start, and answers nothing afterwards.
func fuseProgram(t *testing.T, dir string) (path string, abort func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	if err := unix.Mount("hostile", dir, "fuse", 0, "fd="+strconv.Itoa(fd)+",rootmode=40000,user_id=0,group_id=0,allow_other"); err != nil {
		_ = unix.Close(fd)
		t.Skipf("needs the right to mount: %v", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveProgram(fd)
	}()
	abort = func() { _ = unix.Unmount(dir, unix.MNT_FORCE) } // pending requests fail; an error means that it is in use
	t.Cleanup(func() {
		abort()
		_ = unix.Unmount(dir, unix.MNT_DETACH) // if it was in use
		<-served
		_ = unix.Close(fd)
	})
	return filepath.Join(dir, "program"), abort
}

// serveProgram serves a directory with one file, until the file is opened a second time.
func serveProgram(fd int) {
	const text = "#!/bin/sh\nexit 0\n"
	opens, hangs := 0, false
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		op, unique, node := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint64(buf[8:]), binary.NativeEndian.Uint64(buf[16:])
		if op == fuseForget || op == fuseForgets || hangs {
			continue
		}
		attr := func(node uint64) []byte { // struct fuse_attr
			mode, size := uint32(unix.S_IFDIR|0o755), uint64(4096)
			if node == 2 {
				mode, size = unix.S_IFREG|0o755, uint64(len(text))
			}
			return pack(node, size, uint64(1), uint64(0), uint64(0), uint64(0), uint32(0), uint32(0), uint32(0), mode, uint32(1), uint32(0), uint32(0), uint32(0), uint32(4096), uint32(0))
		}
		var answer []byte
		failed := int32(0)
		switch op {
		case fuseInit:
			answer = pack(uint32(7), uint32(31), uint32(0), uint32(0), uint16(0), uint16(0), uint32(4096), uint32(1), uint16(0), uint16(0), [8]uint32{})
		case fuseLookup:
			answer = append(pack(uint64(2), uint64(0), uint64(0), uint64(0), uint32(0), uint32(0)), attr(2)...)
			if !bytes.HasPrefix(buf[40:n], []byte("program\x00")) {
				answer, failed = nil, -int32(unix.ENOENT)
			}
		case fuseGetattr:
			answer = append(pack(uint64(0), uint32(0), uint32(0)), attr(node)...)
		case fuseOpen:
			if opens++; opens > 1 {
				hangs = true
				continue
			}
			answer = pack(uint64(0), uint32(1), uint32(0)) // FOPEN_DIRECT_IO: nothing is cached
		case fuseRead:
			answer = []byte(text)
		case fuseStatfs:
			answer = pack(uint64(1), uint64(1), uint64(1), uint64(1), uint64(1), uint32(4096), uint32(255), uint32(4096), uint32(0), [6]uint32{})
		case fuseRelease, fuseFlush:
		default:
			failed = -int32(unix.ENOSYS)
		}
		_, _ = unix.Write(fd, append(pack(uint32(16+len(answer)), failed, unique), answer...)) //nolint:gosec // at most a few hundred bytes
	}
}

func pack(all ...any) []byte {
	var b bytes.Buffer
	for _, x := range all {
		_ = binary.Write(&b, binary.NativeEndian, x) // writing to memory does not fail
	}
	return b.Bytes()
}
