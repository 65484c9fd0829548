package daemon

// The quarantine of this host and of its GPUs on disk, so that a restarted daemon knows it.

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/worker/health"
)

// quarantineKey is the key of the quarantine in the store. Its name is from older releases.
const quarantineKey = "worker/aside"

// loadQuarantine reads the quarantine that the previous daemon saved.
func loadQuarantine(disk *store.Store) (was health.Quarantine, err error) {
	text, err := disk.Get(quarantineKey)
	if err != nil || text == nil {
		return health.Quarantine{}, err
	}
	if err := json.Unmarshal(text, &was); err != nil {
		return health.Quarantine{}, fmt.Errorf("node: read the quarantine of this host: %w", err)
	}
	return was, nil
}

func saveQuarantine(disk *store.Store, now health.Quarantine) error {
	text, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("node: save the quarantine of this host: %w", err)
	}
	return disk.Put(quarantineKey, text)
}
