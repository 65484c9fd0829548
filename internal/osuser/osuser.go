// Package osuser looks up users of this host: in /etc/passwd and /etc/group, and if /etc/nsswitch.conf names directory
// services (LDAP, sssd, NIS) there too, with the command getent. A program without cgo cannot ask these services itself,
// and one with cgo cannot end a question that hangs, and needs several times the memory. So the daemon and its runners look
// users up in the same way. It may take seconds, so no loop does it. The daemon does not look users up for its runners:
// each start would wait in the daemon.
//
// Unknown is not no: a service that does not answer ends a start with exit code 125, as a fault of the host. But getent
// cannot tell a user who does not exist from a service that is down and says so; this counts as no such user.
package osuser

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
)

// User is a user of this host.
type User struct {
	Name     string
	UID, GID uint32
	Home     string // "" if it is not an absolute path
}

// host is where the users of this host are.
var host = newDirectory("/etc", "getent")

// Lookup returns a user of this host. The error is a user.UnknownUserError if there is none. Any other error means that
// nothing could be learned. It may take as long as a directory service is waited for.
func Lookup(name string) (User, error) { return host.Lookup(name) }

// Name returns the name of the user of this host who has this uid. The error is a user.UnknownUserIdError if there is none.
// Any other error means that nothing could be learned. It may take as long as a directory service is waited for.
func Name(uid uint32) (string, error) { return host.Name(uid) }

// ForPeople returns the name of a user of this host for a message: the uid if the name is not known.
func ForPeople(uid int) string {
	name, err := Name(uint32(uid)) //nolint:gosec // the kernel has 32 bits
	if err != nil {
		return strconv.Itoa(uid)
	}
	return name
}

// Groups returns the groups of a user of this host, the user's own group first.
func Groups(u User) ([]uint32, error) { return host.Groups(u) }

// InFile returns the users in /etc/passwd, in the order of the file. If a name is there twice, the first line counts.
func InFile() ([]User, error) { return host.inFile() }

// FirstUser returns the first uid of people. Accounts below it are those of the system.
func FirstUser() uint32 { return host.firstUser() }

// The uids that systemd gives to services while they run. Its NSS module lists them as users.
const firstDynamic, lastDynamic = 61184, 65519

// directory is where the users of a host are. Make one with newDirectory.
type directory struct {
	etc    string // the directory of passwd, group, nsswitch.conf and login.defs
	getent string // the command that asks the directory services
	// patience is how long an answer of getent is waited for.
	patience time.Duration
	kept     answers
}

// newDirectory makes one from the files in etc and the command getent.
func newDirectory(etc, getent string) *directory {
	return &directory{etc: etc, getent: getent, patience: patience, kept: answers{of: map[string]answer{}}}
}

// Lookup returns a user; see the function of the same name.
func (d *directory) Lookup(name string) (User, error) {
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, ":\n\x00") {
		return User{}, user.UnknownUserError(name)
	}
	if u, inFile, err := d.named(name); err != nil || inFile {
		return u, err
	}
	sources := d.sources("passwd")
	if !hasServices(sources) {
		return User{}, user.UnknownUserError(name)
	}
	line, err := d.ask("passwd", name)
	if err != nil {
		return User{}, err
	}
	u, ok := parseUser(line)
	switch {
	case line == "" || ok && u.Name != name: // a number, which getent takes for a uid, or a name in another case
		return User{}, user.UnknownUserError(name)
	case !ok:
		return User{}, fmt.Errorf("user %s: getent passwd answers %.80q", name, line)
	case u.UID < d.firstUser():
		return User{}, fmt.Errorf("%w: the directory service gives it uid %d, and uids below %d are those of the system", user.UnknownUserError(name), u.UID, d.firstUser())
	case u.UID >= firstDynamic && u.UID <= lastDynamic && slices.Contains(sources, "systemd"):
		return User{}, fmt.Errorf("%w: uid %d is that of a service of systemd", user.UnknownUserError(name), u.UID)
	}
	return u, nil
}

// Name returns the name of the user with a uid; see the function of the same name.
func (d *directory) Name(uid uint32) (string, error) {
	nobody := user.UnknownUserIdError(int(uid))
	if u, inFile, err := d.owning(uid); err != nil || inFile {
		return u.Name, err
	}
	if !hasServices(d.sources("passwd")) {
		return "", nobody
	}
	line, err := d.ask("passwd", strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return "", err
	}
	u, ok := parseUser(line)
	if line == "" || ok && u.UID != uid {
		return "", nobody
	}
	if !ok {
		return "", fmt.Errorf("uid %d: getent passwd answers %.80q", uid, line)
	}
	switch _, taken, err := d.named(u.Name); {
	case err != nil:
		return "", err
	case taken:
		return "", fmt.Errorf("%w: the directory service calls it %s, which is another account of this host", nobody, u.Name)
	}
	return u.Name, nil
}

// Groups returns the groups of a user. If no directory service answers, users in the file have their groups in the file.
func (d *directory) Groups(u User) ([]uint32, error) {
	groups, err := d.groupsInFile(u)
	if err != nil {
		return nil, err
	}
	if !hasServices(d.sources("initgroups", "group")) {
		return groups, nil
	}
	line, err := d.ask("initgroups", u.Name)
	if err == nil {
		var more []uint32
		if more, err = parseGroups(line, u.Name); err == nil {
			return union(groups, more), nil
		}
	}
	if _, inFile, problem := d.named(u.Name); problem == nil && inFile {
		return groups, nil
	}
	return nil, err
}

// union returns the numbers of both lists, each once, in the order of their first appearance.
func union(a, b []uint32) []uint32 {
	seen := make(map[uint32]bool, len(a)+len(b))
	out := make([]uint32, 0, len(a)+len(b))
	for _, n := range slices.Concat(a, b) {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
