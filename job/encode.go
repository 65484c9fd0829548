package job

// The encoding of a job file on the wire and on disk.

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// EncodeSpec returns the job file as JSON, as daemons send and store it: messages and records have it as a field of
// bytes. So a new field of a spec changes one struct, and no protobuf message has to be kept in step with it by hand.
// MaxSpecBytes bounds the length of this text.
// The characters <, > and & are not escaped, because scripts contain many of them.
func EncodeSpec(s Spec) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
