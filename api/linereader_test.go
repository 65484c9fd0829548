package api

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLineReaderBoundsLines(t *testing.T) {
	long := strings.Repeat("x", 3*lineBuffer)
	for name, c := range map[string]struct {
		text string
		want []string
		err  error
	}{
		"none":         {"", nil, io.EOF},
		"some":         {"a\n\nbc\n", []string{"a", "", "bc"}, io.EOF},
		"a cut line":   {"a\nb", []string{"a"}, io.EOF},
		"a long one":   {"a\n" + long + "\nb\n" + long + "\n", []string{"a", long, "b", long}, io.EOF},
		"as allowed":   {strings.Repeat("y", 4*lineBuffer-1) + "\n", []string{strings.Repeat("y", 4*lineBuffer-1)}, io.EOF},
		"too long":     {"a\n" + strings.Repeat("y", 4*lineBuffer) + "\nb\n", []string{"a"}, bufio.ErrTooLong},
		"without end":  {strings.Repeat("z", 1<<20), nil, bufio.ErrTooLong},
		"as a buffer":  {strings.Repeat("b", lineBuffer) + "\n", []string{strings.Repeat("b", lineBuffer)}, io.EOF},
		"and one less": {strings.Repeat("b", lineBuffer-1) + "\n", []string{strings.Repeat("b", lineBuffer-1)}, io.EOF},
	} {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text))} {
			l := newLineReader(r, 4*lineBuffer)
			var got []string
			var err error
			for err == nil {
				var line []byte
				if line, err = l.next(); err == nil {
					got = append(got, string(line))
				}
			}
			if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) || !errors.Is(err, c.err) {
				t.Errorf("%s, %s: got %d lines, %v; want %d, %v", name, how, len(got), err, len(c.want), c.err)
			}
		}
	}
}
