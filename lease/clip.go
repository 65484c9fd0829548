package lease

// Sentences for people: how long one may be when it travels.

import "strings"

// Clip makes a sentence fit to travel: one line of at most MaxDetail bytes of valid UTF-8.
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
