package files

// The records of attempts with files, from which the next daemon continues.

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
)

// saved is the content of an attempt's record.
type saved struct {
	Boot string      `json:"boot"`
	Task driver.Task `json:"task"`
}

// save writes an attempt's record. It is not synced, because after a power cut the attempt is lost anyway.
func (c Config) save(t driver.Task) error {
	if err := makeStaging(c); err != nil {
		return err
	}
	b, err := json.Marshal(saved{c.Boot, t})
	if err == nil {
		err = os.WriteFile(c.record(t.Attempt), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("files: write record of %s: %w", t.Attempt, err)
	}
	return nil
}

// load reads an attempt's record.
func (c Config) load(a job.Attempt) (saved, error) {
	var s saved
	b, err := os.ReadFile(c.record(a))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && s.Task.Attempt != a {
		err = errors.New("it names another attempt")
	}
	if err != nil {
		return s, fmt.Errorf("files: read record of %s: %w", a, err)
	}
	return s, nil
}
