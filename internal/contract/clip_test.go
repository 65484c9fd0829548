package contract

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsClippedToOneLine(t *testing.T) {
	if got := Clip("no room\non \x1b[1mamy\xff"); got != "no room on  [1mamy" {
		t.Errorf(`%q, want "no room on  [1mamy"`, got)
	}
	long := strings.Repeat("é", MaxDetail)
	if got := Clip("x" + long); len(got) > MaxDetail || !utf8.ValidString(got) || len(got) < MaxDetail-1 {
		t.Errorf("%d bytes, valid: %v, want the bound or a byte less, and true", len(got), utf8.ValidString(got))
	}
}
