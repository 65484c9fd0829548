package job

// A job file as it travels and lies on disk.

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// EncodeSpec writes the job file in JSON as it travels between daemons and lies
// on disk: it is the length of this text that MaxSpecBytes bounds. The letters
// <, > and & stand for themselves, as a script is full of them.
func EncodeSpec(s Spec) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
