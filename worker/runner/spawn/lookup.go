package spawn

// Looking up the program that a task names, and the account that it runs as.

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/osuser"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/userfile"
)

// The exit codes of a task that never ran, the same as a shell's.
const (
	CodeOurs          = job.ExitMuster // the cause is this host and not the task
	CodeNotExecutable = job.ExitNotExecutable
	codeNotFound      = job.ExitNotFound
)

// defaultPath is searched when a task's environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// program finds the path of the program name for a task with this working directory and environment.
func program(t userfile.Thread, name string, workdir workdir, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return workdir.abs(name), executable(t, workdir, name, name)
	}
	found := notFound(name)
	for _, dir := range filepath.SplitList(variable(env, "PATH", defaultPath)) {
		if dir == "" {
			dir = "."
		}
		at := filepath.Join(dir, name)
		err := executable(t, workdir, at, name)
		if err == nil {
			return workdir.abs(at), nil
		}
		if r := (*StartError)(nil); errors.As(err, &r) && (r.Host || r.Code == CodeNotExecutable && !r.hidden) {
			found = err
		}
	}
	return "", found
}

// executable returns the reason why nobody can execute a file, or nil. Whether this user may is left to the kernel.
func executable(t userfile.Thread, workdir workdir, path, name string) error {
	var is unix.Stat_t
	fd, err := workdir.open(t, path, unix.O_PATH, 0)
	if err == nil {
		err = unix.Fstat(fd, &is)
		_ = unix.Close(fd) // nothing was written
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return &StartError{Code: CodeNotExecutable, Text: "permission denied: " + name, hidden: true}
	case errors.Is(err, userfile.ErrKernel), errors.Is(err, userfile.ErrLink):
		return Refuse(CodeNotExecutable, "cannot execute %s: %v", name, err)
	case isOne(err, exhausted), isOne(err, unreachable):
		return refuseFor(err, "cannot execute %s: %v", name, err)
	case err != nil:
		return notFound(name)
	case is.Mode&unix.S_IFMT == unix.S_IFDIR:
		return Refuse(CodeNotExecutable, "is a directory: %s", name)
	case is.Mode&0o111 == 0:
		return Refuse(CodeNotExecutable, "not executable: %s", name)
	}
	return nil
}

// notFound is the reason of a program that is not there. In docker run the image comes first, where muster has the program.
func notFound(name string) error {
	if namesImage(name) {
		return Refuse(codeNotFound, "command not found: %s; if that is an image, name it with --image %s and put only the command after --", name, name)
	}
	return Refuse(codeNotFound, "command not found: %s", name)
}

// namesImage says whether the name of a program is rather that of an image with its tag or its digest.
func namesImage(name string) bool {
	const most = 512 // bytes; also bounds the reason
	image, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	image = strings.TrimSuffix(image, "@sha256")
	return len(name) <= most && tagged && image != "" && tag != "" && !strings.ContainsAny(name[:1], "/._-") && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("/:@._-", r)
	})
}

// variable returns the value of a variable in env, or otherwise. If env has it twice, the last one counts.
func variable(env []string, name, otherwise string) string {
	value := otherwise
	for _, word := range env {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			value = v
		}
	}
	return value
}

// setVariable returns a copy of env in which name is set once, to value.
func setVariable(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, word := range env {
		if !strings.HasPrefix(word, name+"=") {
			out = append(out, word)
		}
	}
	return append(out, name+"="+value)
}

// Account is the user and the groups that a task runs as.
type Account struct {
	name string
	home string
	cred *syscall.Credential // nil: the runner's own
	UID  int
	GID  int
}

// AccountOf returns the account for tasks of a user on this host. A runner that is root runs tasks as their users;
// any other runner runs them as itself. The error says why tasks of this user do not run here.
func AccountOf(name string, allowRoot bool) (Account, error) {
	if os.Geteuid() != 0 {
		return Account{UID: os.Geteuid(), GID: os.Getegid()}, nil
	}
	u, err := osuser.Lookup(name)
	if _, missing := errors.AsType[user.UnknownUserError](err); missing {
		return Account{}, RefuseHere("user %q: no such user on this node%s", name, strings.TrimPrefix(err.Error(), user.UnknownUserError(name).Error()))
	}
	if err != nil {
		return Account{}, Refuse(CodeOurs, "user %q on this node: %v", name, err)
	}
	if u.UID == 0 {
		if !allowRoot {
			return Account{}, RefuseHere("user %q: this node runs no tasks of root; its daemon needs --allow-root", name)
		}
		return Account{name: u.Name, home: u.Home}, nil
	}
	groups, err := osuser.Groups(u)
	if err != nil {
		return Account{}, Refuse(CodeOurs, "groups of user %q on this node: %v", name, err)
	}
	cred := &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: groups}
	return Account{name: u.Name, home: u.Home, cred: cred, UID: int(u.UID), GID: int(u.GID)}, nil
}

// Other reports whether the account is not the one that this process runs as.
func (id Account) Other() bool { return id.cred != nil }

// give makes the user the owner of an open file.
func (id Account) give(fd int) error {
	if id.cred == nil {
		return nil
	}
	return unix.Fchown(fd, id.UID, id.GID)
}

// own makes the user the owner of a path.
func (id Account) own(path string) error {
	if id.cred == nil {
		return nil
	}
	if err := os.Lchown(path, id.UID, id.GID); err != nil {
		return fmt.Errorf("runner: give to %s: %w", id.name, err)
	}
	return nil
}
