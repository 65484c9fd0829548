//go:build e2e

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOpenAPIDocumentIsValid gives the document to a public validator, and compiles a client that is generated from it.
func TestOpenAPIDocumentIsValid(t *testing.T) {
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
		t.Skipf("the validator is not available here: %s", out)
	case err != nil:
		t.Fatalf("validator: got %v, want no error\n%s", err, out)
	}
	t.Logf("%s", out)
}
