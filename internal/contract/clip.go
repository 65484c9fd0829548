package contract

// How long a text for people may be on the wire.

import "strings"

// Clip returns s as one line of valid UTF-8 of at most MaxDetail bytes.
func Clip(s string) string {
	if len(s) > MaxDetail {
		s = s[:MaxDetail]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
