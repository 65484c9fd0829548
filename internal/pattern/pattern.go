// Package pattern has regular expressions that are compiled when they are first used: a verb that does not need one starts
// without it.
package pattern

import (
	"regexp"
	"sync"
)

// Of returns what compiles an expression once. It panics at the first use if the expression is none.
func Of(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
