//go:build e2e

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOpenAPIValidator gives the document to a public validator, and compiles a client that is made from it.
func TestOpenAPIValidator(t *testing.T) {
	t.Parallel()
	doc, err := exec.Command(binary(t), "manual", "--openapi").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../internal/tools/openapi-check.sh", file).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 3:
		t.Skipf("the validator cannot be had here: %s", out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
