package report

// Documents as JSON.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDocument bounds a document that is read.
const maxDocument = 256 << 20

// Write writes the document as one line of JSON. It sets the schema.
func Write(out io.Writer, d *Document) error {
	d.Schema = Schema
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

// Read reads a document that Write has written, even if a later version has written further fields.
func Read(in io.Reader) (*Document, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("more than %d bytes: this is no document of a simulation", maxDocument)
	}
	d := &Document{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("not a document of muster simulate --json: %w", err)
	}
	if d.Schema != Schema {
		return nil, fmt.Errorf("schema %.40q: want %s, which muster simulate --json prints", d.Schema, Schema)
	}
	if len(d.Runs) == 0 || d.Runs[0].Figures == nil && d.Runs[0].Placement == nil {
		return nil, errors.New("runs: the document has no figures")
	}
	return d, nil
}
