package table

// The order of the rows.

import (
	"cmp"
	"fmt"
	"strings"
)

// By returns a comparison of items by a number or a text.
func By[T any, K cmp.Ordered](key func(T) K) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(key(a), key(b)) }
}

// Sorter returns the order that a list such as user,-submitted means. A dash before a column, or :desc after it,
// reverses the column's order.
func (all Columns[T]) Sorter(list string) (func(a, b T) int, error) {
	var orders []func(a, b T) int
	for text := range strings.SplitSeq(list, ",") {
		name, reverse := strings.CutPrefix(strings.TrimSpace(text), "-")
		name, way, said := strings.Cut(name, ":")
		if said && way != "asc" && way != "desc" {
			return nil, fmt.Errorf("%.40q: want asc or desc after the colon", text)
		}
		c, err := all.find(name)
		if err != nil {
			return nil, err
		}
		order := c.Order
		if order == nil {
			order = By(c.Cell)
		}
		if reverse != (way == "desc") {
			orders = append(orders, func(a, b T) int { return order(b, a) })
		} else {
			orders = append(orders, order)
		}
	}
	return func(a, b T) int {
		for _, order := range orders {
			if n := order(a, b); n != 0 {
				return n
			}
		}
		return 0
	}, nil
}
