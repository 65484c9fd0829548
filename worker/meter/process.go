package meter

// Single processes: their CPU time, memory, threads and disk I/O, and which belong to a task without a control group.

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ticks is how many ticks of CPU time a second has in /proc: USER_HZ, the same on every architecture that Go runs on.
const ticks = 100

// process is what /proc/PID/stat says.
type process struct {
	pid, parent, session int
	cpu                  float64 // seconds, with those of the children that it has waited for
	threads              float64
	memory               float64 // resident bytes
}

// The fields of /proc/PID/stat, counted from the third: see proc_pid_stat(5).
const (
	fieldState   = 0
	fieldParent  = 4 - 3
	fieldSession = 6 - 3
	fieldUser    = 14 - 3 // then system, and both of the children
	fieldThreads = 20 - 3
	fieldRSS     = 24 - 3
)

// stat reads what the kernel says about a process. It returns false for one that is gone or a zombie.
func (k *kernel) stat(pid int) (p process, ok bool) {
	b, err := k.ofProcess(pid, "stat")
	if err != nil {
		return p, false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the second field, the name of the program, may contain anything
	if len(f) <= fieldRSS || f[fieldState][0] == 'Z' || f[fieldState][0] == 'X' {
		return p, false
	}
	whole := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n } // the kernel writes numbers
	p = process{pid: pid, parent: whole(fieldParent), session: whole(fieldSession), threads: float64(whole(fieldThreads))}
	for i := range 4 {
		p.cpu += float64(whole(fieldUser+i)) / ticks
	}
	p.memory = float64(whole(fieldRSS)) * float64(os.Getpagesize())
	return p, true
}

// io reads how many bytes a process, and the children that it has waited for, have read from disks and written to them.
// Only its own user and root may read that.
func (k *kernel) io(pid int) (read, written float64, ok bool) {
	b, err := k.ofProcess(pid, "io")
	if err != nil {
		return 0, 0, false
	}
	read, r := valueOf(b, "read_bytes: ")
	written, w := valueOf(b, "write_bytes: ")
	return read, written, r && w
}

// processes lists the processes of the host, by pid.
func (k *kernel) processes() map[int]process {
	all := map[int]process{}
	d, err := os.Open(k.proc)
	if err != nil {
		return all
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return all
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := k.stat(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// familyOf lists the descendants of a process and the members of its session, if it leads one, and itself. A process
// that has left both is missed.
func familyOf(main int, all map[int]process) (members []int) {
	for pid, p := range all {
		if p.session == main {
			members = append(members, pid)
			continue
		}
		for at, depth := pid, 0; at > 1 && depth < len(all); depth++ {
			if at == main {
				members = append(members, pid)
				break
			}
			at = all[at].parent
		}
	}
	return members
}

// membersOf lists the processes in a control group and below it. It returns false if the group cannot be read.
func (k *kernel) membersOf(group string) (members []int, ok bool) {
	b, err := k.read(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return nil, false
	}
	for word := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(word)); err == nil {
			members = append(members, pid)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(group, &st); err != nil || st.Nlink == 2 { // a directory has one more link for each directory in it
		return members, true
	}
	entries, err := os.ReadDir(group)
	if err != nil {
		return members, true
	}
	for _, e := range entries {
		if e.IsDir() {
			more, _ := k.membersOf(filepath.Join(group, e.Name())) // a group that has just gone has no members
			members = append(members, more...)
		}
	}
	return members, true
}
