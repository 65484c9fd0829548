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
	dir, err := os.Open(parent)
	if err != nil {
		return users
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(keptNames)
		for _, name := range names {
			if user := KeptFor(filepath.Join(parent, name)); user != "" {
				size, _, _ := sizeOf(filepath.Join(parent, name, KeptFiles))
				users[user] += size
			}
		}
		if err != nil {
			return users
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
