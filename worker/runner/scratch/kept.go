package scratch

// The files that are kept of tasks that have ended: how much each user holds by them.

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	// KeptFiles is the directory of an attempt with its kept files.
	KeptFiles = "files"
	// KeptAbout is the file that says whose they are.
	KeptAbout = "files.json"
	// maxAbout bounds what is read of the latter.
	maxAbout = 64 << 10
	// keptNames bounds the names that are read at a time.
	keptNames = 1024
)

// kept is what is kept for each user. Reading it is bounded as measuring is.
type kept struct {
	users map[string]job.Size
	at    time.Time
	took  time.Duration
}

// read returns what is kept for each user of the attempts in a directory.
func (k *kept) read(parent string, now time.Time) map[string]job.Size {
	if k.users != nil && now.Sub(k.at) < k.took*shortFactor {
		return k.users
	}
	k.users, k.at = KeptBy(parent), now
	k.took = time.Since(now)
	return k.users
}

// KeptBy returns what is kept for each user, of the attempts in a directory.
func KeptBy(parent string) map[string]job.Size {
	users := map[string]job.Size{}
	eachKept(parent, func(user, path string) { users[user] += SizeOf(path) })
	return users
}

// KeptOf returns what is kept for one user. It does not look at what is kept for others, however much that is.
func KeptOf(parent, user string) (size job.Size) {
	eachKept(parent, func(whose, path string) {
		if whose == user {
			size += SizeOf(path)
		}
	})
	return size
}

// eachKept calls f with each directory of kept files, of the attempts in a directory, and its user.
func eachKept(parent string, f func(user, path string)) {
	dir, err := os.Open(parent)
	if err != nil {
		return
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(keptNames)
		for _, name := range names {
			if user := KeptFor(filepath.Join(parent, name)); user != "" {
				f(user, filepath.Join(parent, name, KeptFiles))
			}
		}
		if err != nil {
			return
		}
	}
}

// KeptFor returns the user for whom files of an attempt are kept in its directory, or "".
func KeptFor(dir string) string {
	f, err := os.Open(filepath.Join(dir, KeptAbout))
	if err != nil {
		return ""
	}
	defer f.Close()
	var about struct{ User string }
	if json.NewDecoder(io.LimitReader(f, maxAbout)).Decode(&about) != nil {
		return ""
	}
	return about.User
}
