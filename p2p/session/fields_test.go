package session

// The fields of all messages, each with the format that brought it.

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

var update = flag.Bool("update", false, "write the table of the fields; a new field needs a format by hand")

const fieldsFile = "testdata/fields.txt"

// Each field of a message is in testdata/fields.txt as MESSAGE.FIELD NUMBER TYPE SINCE. SINCE is the first format whose
// receivers know the field, or "ignored": a receiver that does not know the field does nothing wrong then. A message
// that needs a format is sent only to peers that know it (outbox.refuses, and job.Spec.NeededFormat for the messages
// about a job).
func TestEveryFieldOfTheWireIsListed(t *testing.T) {
	text, err := os.ReadFile(fieldsFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	since := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 4 {
			since[strings.Join(words[:3], " ")] = words[3]
		}
	}
	var out strings.Builder
	list := func(key string) {
		word := since[key]
		if word == "" {
			word = "?"
		}
		if n, err := strconv.Atoi(word); word != "ignored" && (err != nil || n < 1 || job.Format(n) > job.FormatNow) {
			t.Errorf("%s: got the format %q, want in %s a number up to %d, or the word ignored", key, word, fieldsFile, job.FormatNow)
		}
		delete(since, key)
		fmt.Fprintf(&out, "%s %s\n", key, word)
	}
	messages := wirepb.File_p2p_wirepb_session_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			list(fmt.Sprintf("%s.%s %d %s", m.Name(), f.Name(), f.Number(), kindOf(f)))
		}
	}
	for key := range since {
		t.Errorf("%s is in the table and in no message: want that a field is never removed and keeps its number and type", key)
	}
	if *update {
		if err := os.WriteFile(fieldsFile, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func kindOf(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	if m := f.Message(); m != nil {
		kind = string(m.Name())
	}
	if f.IsList() {
		kind = "[]" + kind
	}
	return kind
}
