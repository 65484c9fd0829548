package private

// What a task sees of the host's directories. Only names decide: each entry directly in /tmp is kept as a whole, so that
// paths such as ../data work, too.

import (
	"path/filepath"
	"slices"
	"strings"
)

const (
	// displays is the directory of the sockets of X11.
	displays = ".X11-unix"
	// maxKept bounds the names of one place. A task that names more shares the place with the host.
	maxKept = 64
	// separators end a path in a word, or come before it: --in=/tmp/a, unix:path=/tmp/b,guid=1, /usr/bin:/tmp/c.
	separators = "=:,;"
)

// Kept is what one task sees of the directories of the host. Make one with Mounter.Keep.
type Kept struct {
	m      *Mounter
	uid    int
	shared [places]bool // the task has no directory of its own there
	names  [places][]keptName
}

// keptName is a name in a directory of the host.
type keptName struct {
	name    string
	whoever bool // it is kept whoever owns the file; else its owner decides
}

// Keep returns what every task of a user sees: the displays of the host, if it has any.
func (m *Mounter) Keep(uid int) *Kept {
	k := &Kept{m: m, uid: uid}
	k.add(tmp, displays, false)
	return k
}

// Path keeps what a path leads to, whoever owns it. A place that is named as a whole is shared with the host.
func (k *Kept) Path(path string) {
	if path == "" {
		return
	}
	path = filepath.Clean(path)
	for i := range k.m.places {
		name, in := k.m.places[i].below(path)
		if in && name == "" {
			k.shared[i] = true
		} else if in {
			k.add(i, name, true)
		}
	}
}

// Words keeps what words of a command or an environment name by an absolute path, if it belongs to the user, or is a
// directory or a socket of root. So what other users have left there is not in the way.
func (k *Kept) Words(words []string) {
	for _, word := range words {
		for i := range k.m.places {
			for _, at := range k.m.places[i].names {
				k.word(i, at, word)
			}
		}
	}
}

// word keeps what a word names below the path at.
func (k *Kept) word(i int, at, word string) {
	for from := 0; ; {
		n := strings.Index(word[from:], at)
		if n < 0 {
			return
		}
		begin := from + n
		from = begin + len(at)
		if begin > 0 && strings.IndexByte(separators, word[begin-1]) < 0 || from == len(word) || word[from] != '/' {
			continue
		}
		name := strings.TrimLeft(word[from:], "/")
		if end := strings.IndexAny(name, "/"+separators); end >= 0 {
			name = name[:end]
		}
		if name != "" && name != "." && name != ".." {
			k.add(i, name, false)
		}
	}
}

// add keeps a name.
func (k *Kept) add(i int, name string, whoever bool) {
	at := slices.IndexFunc(k.names[i], func(n keptName) bool { return n.name == name })
	switch {
	case at >= 0:
		k.names[i][at].whoever = k.names[i][at].whoever || whoever
	case len(k.names[i]) == maxKept:
		k.shared[i] = true
	default:
		k.names[i] = append(k.names[i], keptName{name, whoever})
	}
}
