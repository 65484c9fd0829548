package placing

// Lists of arrivals as the published experiment made them from a table.

import (
	"errors"
	"fmt"
	"math/rand" //nolint:depguard // the lists were published with this generator
	"slices"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
)

// Inflation is how much of the GPUs the published lists ask for, in percent.
const Inflation = 130

// draws is how many random numbers the published experiment drew between the list and the ranks. It was found by
// trying: with it the published figures are reproduced.
const draws = 10

// Inflate returns the arrivals of a seed: all requests of the table in random order, then random ones of them until the
// list asks for percent of the GPUs. To decide whether a request still fits below that limit, only the thousandths of
// one of its devices are counted, as in the published code. Added requests have "-tuned-" and a number after their
// name. If the table asks for more, random requests are removed instead.
//
// Ranks are the order of the machines in which the published policies break ties: see Config.Ranks.
func Inflate(machines []load.Machine, table []load.Request, seed int64, percent int) (arrivals []load.Request, ranks []int, err error) {
	base := slices.Clone(table)
	slices.SortStableFunc(base, func(a, b load.Request) int { return strings.Compare(a.Name, b.Name) })
	r := rand.New(rand.NewSource(seed))
	r.Int()
	list := slices.Clone(base)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	capacity, have := 0, 0
	for i := range machines {
		capacity += machines[i].GPUs * gpu.Whole
	}
	for i := range list {
		have += list[i].AllMilli()
	}
	if have == 0 {
		return nil, nil, errors.New("no request of the table asks for a GPU")
	}
	want := capacity * percent / 100
	for n := 0; have < want; n++ {
		x := base[r.Intn(len(base))]
		if have+x.Milli > want {
			break
		}
		have += x.AllMilli()
		x.Name = fmt.Sprint(x.Name, "-tuned-", n)
		list = append(list, x)
	}
	for have > want {
		i := r.Intn(len(list))
		have -= list[i].AllMilli()
		list = slices.Delete(list, i, i+1)
	}
	for range draws {
		r.Float64()
	}
	order := byName(machines)
	ranks = make([]int, len(machines))
	for i, rank := range r.Perm(len(machines)) {
		ranks[order[i]] = rank
	}
	return list, ranks, nil
}

// byName returns the indices of the machines in the order of their names.
func byName(machines []load.Machine) []int {
	order := make([]int, len(machines))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(machines[a].Name, machines[b].Name) })
	return order
}
