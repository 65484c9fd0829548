package fleet

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// The table never returns an outdated row of a host. Whatever happens to the host, a row says what is left of the host
// for each request, and a search agrees with Devices.Suffices.
func TestRowsSayWhatIsLeftOfEachHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable()
		h := table.Add("p", false)
		profile := contract.Profile{Name: "h", CPUs: 64, Memory: 64 << 30, Worker: true, Drivers: []string{contract.DriverExec}}
		n := rapid.IntRange(0, 10).Draw(t, "gpus")
		for i := range n {
			d := gpu.Device{UUID: fmt.Sprint("g", i), Class: "t4", Memory: 16 << 30, NUMA: rapid.SampledFrom([]int{-1, 0, 1, 200}).Draw(t, "numa")}
			profile.GPUs = append(profile.GPUs, d)
		}
		drawFree := func() contract.Free {
			f := contract.Free{
				CPUs: rapid.IntRange(0, 64).Draw(t, "cpus"), Memory: 64 << 30, Tasks: rapid.IntRange(0, 2).Draw(t, "tasks"),
				Exclusive: rapid.IntRange(0, 9).Draw(t, "exclusive") == 0,
			}
			for i := range n {
				if milli := rapid.SampledFrom([]int{0, 1, 300, 700, 1000}).Draw(t, "milli"); milli > 0 {
					f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: fmt.Sprint("g", i), Milli: milli, Memory: job.Size(milli) * (16 << 30) / 1000})
				}
			}
			return f
		}
		drawNeed := func() job.Resources {
			need := job.Resources{CPUs: rapid.IntRange(0, 32).Draw(t, "need"), Exclusive: rapid.IntRange(0, 9).Draw(t, "alone") == 0}
			switch rapid.IntRange(0, 2).Draw(t, "of GPUs") {
			case 1:
				need.GPUs = rapid.IntRange(1, 9).Draw(t, "whole")
				need.GPUModel = rapid.SampledFrom([]string{"", "t4", "h100"}).Draw(t, "model")
			case 2:
				need.GPUShare = rapid.SampledFrom([]float64{0.1, 0.5, 0.7}).Draw(t, "share")
			}
			need.GPUMemory = job.Size(rapid.SampledFrom([]int{0, 8, 16}).Draw(t, "device memory")) << 30
			return need
		}
		table.Hello(h, contract.Hello{Profile: profile, Free: drawFree()}, time.Unix(0, 0))
		rank := Rank{Born: time.Unix(1, 0), Job: "j"}
		var claims []*Claim
		t.Repeat(map[string]func(*rapid.T){
			"count":             func(*rapid.T) { table.Count(time.Unix(1, 0)) },
			"says what is free": func(*rapid.T) { h.SetFree(drawFree()) },
			"hello":             func(*rapid.T) { table.Hello(h, contract.Hello{Profile: profile, Free: drawFree()}, time.Unix(0, 0)) },
			"down":              func(*rapid.T) { h.Down(time.Unix(0, 0)) },
			"claim": func(*rapid.T) {
				c := &Claim{ID: uint64(len(claims)), User: "amy", Need: drawNeed(), State: rapid.SampledFrom([]ClaimState{Direct, Queued}).Draw(t, "state")}
				if devices, lack := h.Devices.Fit(c.Need, h.Left()); c.State == Queued || lack == "" {
					c.Devices = devices
					h.Claim(c)
					claims = append(claims, c)
				}
			},
			"hold": func(*rapid.T) {
				if len(claims) > 0 && claims[0].State != Held {
					h.Hold(claims[0], claims[0].Devices)
				}
			},
			"unclaim": func(*rapid.T) {
				if len(claims) > 0 {
					h.Unclaim(claims[0])
					claims = claims[1:]
				}
			},
			"refuses a user": func(*rapid.T) { h.RefuseQuota("amy", drawNeed(), "enough") },
			"pause":          func(*rapid.T) { h.Pause(time.Unix(2, 0)) },
			"": func(*rapid.T) {
				need := drawNeed()
				free := h.LeftFor(&rank)
				search, room := SearchFor(need), RoomOf(&h.Profile, &h.Devices, free)
				if got, want := search.Fits(&room, &h.Devices, free), h.Devices.Suffices(need, free); got != want {
					t.Fatalf("%+v fits in %+v: %t, want %t", need, free, got, want)
				}
				row := table.Row(h.Slot())
				r := row.Room
				if r == nil {
					return
				}
				room.plain = true
				if s := (&Shape{User: "amy", Need: need}); s.OverQuota(h) != "" || !reflect.DeepEqual(*r, room) || !reflect.DeepEqual(row.Free, free) {
					t.Fatalf("the room is %+v, want %+v; over quota %q", *r, room, s.OverQuota(h))
				}
			},
		})
	})
}
