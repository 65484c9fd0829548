package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

func TestDoctorSeesADeletedDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := filepath.Join(dir, "identity.key")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := dataFact(dir); f.State != api.FactOK {
		t.Errorf("%+v", f)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if f := dataFact(dir); f.State != api.FactFail || !strings.Contains(f.Detail, "while the daemon runs") || !strings.Contains(f.Advice, "stop the daemon") {
		t.Errorf("%+v", f)
	}
}
