package policy

// The expected fill: how much of a host's free GPUs the usual requests will use, if they come in random order.
//
// A device that is free in part is looked up by its free thousandths and by the CPUs that are free on the host. The
// devices that are wholly free are looked up by their number and these CPUs. The tables are worked out from the small
// to the large: what a request leaves is a smaller case.

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

const (
	// grain is the number of steps in which the CPUs that come with one GPU, in the mean, are counted.
	grain = 8
	// unlimited is more steps than any table has.
	unlimited = 1 << 20
	// partSteps and wholeSteps are the lengths of the rows. From the last step on, CPUs are no limit: six times the mean
	// for one device, 13 times for up to wholeMost devices.
	partSteps  = 6*grain + 1
	wholeSteps = 13*grain + 1
	wholeMost  = 8
	// perLevel is how many thousandths are one level of a device that is free in part.
	perLevel = 10
	levels   = gpu.Whole / perLevel
	// patience is how many requests free room waits for. Room that none of them would use counts as wasted.
	patience = 40
)

// class is one kind of request, and how often one of all requests with GPUs is of this kind.
type class struct {
	need    job.Resources
	devices int
	milli   int     // of each device
	steps   float64 // CPUs
	up      point   // steps rounded up, and the part that this adds; see after
	rate    float64
}

// fill is the expected fill of devices of one kind. The zero value is that of devices that no request can use.
type fill struct {
	part  [levels + 1][partSteps]expect     // by level and CPUs
	whole [wholeMost + 1][wholeSteps]expect // by number of devices and CPUs
}

// expect is what requests are expected to use.
type expect struct {
	milli float32 // thousandths of GPUs
	steps float32 // CPUs
}

// newFill works out the tables for the classes that the devices can serve.
func newFill(classes []class) *fill {
	f := &fill{}
	var shares []class
	for _, c := range classes {
		if c.devices == 1 && c.milli < gpu.Whole {
			shares = append(shares, c)
		}
	}
	slices.SortStableFunc(shares, func(a, b class) int { return cmp.Compare(a.milli, b.milli) })
	for l := range f.part {
		for s := range f.part[l] {
			f.part[l][s] = f.expectPart(shares, l, s)
		}
	}
	for n := range f.whole {
		for s := range f.whole[n] {
			f.whole[n][s] = f.expectWhole(classes, n, s)
		}
	}
	return f
}

// sum adds up what follows from each request that fits, weighted by its rate.
type sum struct{ rate, milli, steps float64 }

func (x *sum) add(rate, milli, steps float64) {
	x.rate += rate
	x.milli += rate * milli
	x.steps += rate * steps
}

// mean returns what is expected if one of the requests comes in time.
func (x *sum) mean() expect {
	if x.rate == 0 {
		return expect{}
	}
	inTime := 1 - math.Pow(1-min(x.rate, 1), patience)
	return expect{milli: float32(inTime * x.milli / x.rate), steps: float32(inTime * x.steps / x.rate)}
}

// expectPart works out one device with this level free. The smallest shares come first.
func (f *fill) expectPart(shares []class, l, steps int) expect {
	var x sum
	for i := range shares {
		c := &shares[i]
		left := l - levelsOf(c.milli)
		if left < 0 {
			break
		}
		if rest, fits := c.after(steps, partSteps); fits {
			then := at(f.part[left][:], rest)
			x.add(c.rate, float64(c.milli)+float64(then.milli), c.steps+float64(then.steps))
		}
	}
	return x.mean()
}

// expectWhole works out n devices that are wholly free.
func (f *fill) expectWhole(classes []class, n, steps int) expect {
	var x sum
	for i := range classes {
		c := &classes[i]
		rest, fits := c.after(steps, wholeSteps)
		switch {
		case !fits || c.devices > n || n == 0:
		case c.devices == 0:
			if steps < wholeSteps-1 { // otherwise nothing changes
				then := at(f.whole[n][:], rest)
				x.add(c.rate, float64(then.milli), c.steps+float64(then.steps))
			}
		case c.milli == gpu.Whole:
			then := at(f.whole[n-c.devices][:], rest)
			x.add(c.rate, float64(c.devices*gpu.Whole)+float64(then.milli), c.steps+float64(then.steps))
		default:
			begun := at(f.part[levels-levelsOf(c.milli)][:], rest)
			then := at(f.whole[n-1][:], pointOf(rest.steps()-float64(begun.steps)))
			x.add(c.rate, float64(c.milli)+float64(begun.milli)+float64(then.milli), c.steps+float64(begun.steps)+float64(then.steps))
		}
	}
	return x.mean()
}

// levelsOf rounds the thousandths of a request to levels, at least one.
func levelsOf(milli int) int { return min(max((milli+perLevel/2)/perLevel, 1), levels) }

// point is a place in a row: a step, and a part of the way to the next one.
type point struct {
	step int
	part float32
}

func pointOf(steps float64) point {
	if steps < 0 {
		return point{}
	}
	step := int(steps)
	return point{step, float32(steps - float64(step))}
}

func (p point) steps() float64 { return float64(p.step) + float64(p.part) }

// after returns what the request leaves of the steps. The last step of a row is no limit.
func (c *class) after(steps, of int) (rest point, fits bool) {
	if steps == of-1 {
		return point{step: steps}, true
	}
	rest = point{steps - c.up.step, c.up.part}
	return rest, rest.step >= 0
}

// at looks up a point of a row.
func at(row []expect, p point) expect {
	if p.step >= len(row)-1 {
		return row[len(row)-1]
	}
	a, b := row[p.step], row[p.step+1]
	return expect{milli: a.milli + p.part*(b.milli-a.milli), steps: a.steps + p.part*(b.steps-a.steps)}
}

// partly returns what is expected of a device that is free in part.
func (f *fill) partly(milli int32, steps float64) expect {
	return at(f.part[milli/perLevel][:], pointOf(steps))
}

// wholly returns what is expected of n wholly free devices. More devices than the table has count like wholeMost
// devices, in proportion.
func (f *fill) wholly(n int, steps float64) expect {
	if n <= wholeMost {
		return at(f.whole[n][:], pointOf(steps))
	}
	times := float32(n) / wholeMost
	x := at(f.whole[wholeMost][:], pointOf(steps/float64(times)))
	return expect{milli: times * x.milli, steps: times * x.steps}
}
