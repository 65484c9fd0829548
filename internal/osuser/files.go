package osuser

// The files of a host that list its users and groups, and that say which directory services it has.

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// firstPerson is the first uid of people if login.defs names none.
	firstPerson = 1000
	// maxLines bounds the lines of a file that are read, maxLine their length and maxGroups the groups of a user, in bytes
	// and as Linux does.
	maxLines  = 1 << 16
	maxLine   = 1 << 20
	maxGroups = 1 << 16
	// noID is the number that stands for no user and no group.
	noID = math.MaxUint32
)

// lines calls f with the lines of a file until f returns false. A file that is not there has none. A line is valid until
// f returns.
func (d *directory) lines(name string, f func(line []byte) bool) error {
	file, err := os.Open(filepath.Join(d.etc, name))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("accounts of this host: %w", err)
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	s.Buffer(nil, maxLine)
	for n := 0; n < maxLines && s.Scan() && f(s.Bytes()); n++ {
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("accounts of this host: %w", err)
	}
	return nil
}

// inFile returns the users in passwd.
func (d *directory) inFile() ([]User, error) {
	var all []User
	known := map[string]bool{}
	err := d.lines("passwd", func(line []byte) bool {
		if u, ok := parseUser(string(line)); ok && !known[u.Name] {
			known[u.Name] = true
			all = append(all, u)
		}
		return true
	})
	return all, err
}

// named returns a user in passwd; false if it is not there. Hosts have files of many thousand users, and each start of a
// task reads one, so no other user's line is parsed.
func (d *directory) named(name string) (found User, ok bool, err error) {
	begins := []byte(name + ":")
	err = d.lines("passwd", func(line []byte) bool {
		if bytes.HasPrefix(line, begins) {
			found, ok = parseUser(string(line))
		}
		return !ok
	})
	return found, ok, err
}

// owning returns the first user in passwd with a uid; false if there is none.
func (d *directory) owning(uid uint32) (found User, ok bool, err error) {
	has := fmt.Appendf(nil, ":%d:", uid)
	err = d.lines("passwd", func(line []byte) bool {
		if bytes.Contains(line, has) {
			found, ok = parseUser(string(line))
			ok = ok && found.UID == uid
		}
		return !ok
	})
	return found, ok, err
}

// parseUser reads a line of passwd. It returns false for one that names no user.
func parseUser(line string) (User, bool) {
	f := strings.Split(line, ":")
	if len(f) < 6 || f[0] == "" || strings.ContainsAny(f[0][:1], "+-#") {
		return User{}, false
	}
	uid, okU := parseID(f[2])
	gid, okG := parseID(f[3])
	u := User{Name: f[0], UID: uid, GID: gid}
	if filepath.IsAbs(f[5]) {
		u.Home = f[5]
	}
	return u, okU && okG
}

func parseID(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n != noID //nolint:gosec // 32 bits
}

// groupsInFile returns the groups that group lists for a user, after the user's own.
func (d *directory) groupsInFile(u User) ([]uint32, error) {
	groups := []uint32{u.GID}
	name := []byte(u.Name)
	err := d.lines("group", func(line []byte) bool {
		if !bytes.Contains(line, name) {
			return true
		}
		f := strings.Split(string(line), ":")
		if len(f) < 4 || !slices.Contains(strings.Split(f[3], ","), u.Name) {
			return true
		}
		if gid, ok := parseID(f[2]); ok && !slices.Contains(groups, gid) {
			groups = append(groups, gid)
		}
		return len(groups) < maxGroups
	})
	return groups, err
}

// sources returns where the host looks for users or groups, by the first of these databases that nsswitch.conf has.
func (d *directory) sources(databases ...string) []string {
	found := map[string][]string{}
	_ = d.lines("nsswitch.conf", func(line []byte) bool { // a file that cannot be read names nothing
		text, _, _ := strings.Cut(string(line), "#")
		if name, rest, ok := strings.Cut(text, ":"); ok {
			found[strings.TrimSpace(name)] = strings.Fields(rest)
		}
		return true
	})
	for _, name := range databases {
		if sources, ok := found[name]; ok {
			return sources
		}
	}
	return nil
}

// hasServices reports whether any of the sources is something else than a file. Words in brackets say what to do next.
func hasServices(sources []string) bool {
	inside := false
	for _, word := range sources {
		inside = inside || strings.HasPrefix(word, "[")
		if !inside && word != "files" {
			return true
		}
		inside = inside && !strings.HasSuffix(word, "]")
	}
	return false
}

// firstUser returns UID_MIN of login.defs.
func (d *directory) firstUser() uint32 {
	first := uint32(firstPerson)
	_ = d.lines("login.defs", func(line []byte) bool { // a file that cannot be read names nothing
		words := strings.Fields(string(line))
		if len(words) < 2 || words[0] != "UID_MIN" {
			return true
		}
		n, err := strconv.ParseUint(words[1], 0, 31)
		if err != nil || n == 0 {
			return true
		}
		first = uint32(n) //nolint:gosec // 31 bits
		return false
	})
	return first
}
