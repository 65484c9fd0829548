package daemon

// The vendors of GPUs: only their drivers use their words, so that another vendor needs another driver, and no change
// of the worker.

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// vendorWords are the words of NVIDIA and of other vendors.
var vendorWords = regexp.MustCompile(`(?i)nvidia|cuda|\bxid|\bmps\b|/dev/(nv|kfd|dri)|rocr|\bhip_|level.?zero`)

// neutral are the directories without words of a vendor.
var neutral = []string{"worker", "internal/daemon", "scheduler", "api", "p2p", "dht", "internal/store", "scheduler/journal", "scheduler/state", "internal/hostinfo", "internal/osuser", "internal/dashboard", "internal/docsite", "gpu/gputest"}

func TestNoWordsOfVendors(t *testing.T) {
	files := 0
	for _, dir := range neutral {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(text), "\n") {
				if word := vendorWords.FindString(line); word != "" {
					t.Errorf("%s:%d: got %q, a word for the driver of a vendor, want none", path, i+1, word)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("got %d files, want at least 100", files)
	}
	for _, line := range []string{"d := NVIDIA{}", `"CUDA_VISIBLE_DEVICES"`, "xid 79", "// MPS runs", `"/dev/kfd"`} {
		if !vendorWords.MatchString(line) {
			t.Errorf("%q has no word of a vendor, want one", line)
		}
	}
}
