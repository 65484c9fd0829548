package gpu

// Rules that hold after any sequence of operations on a pool.

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
)

// TestPoolProperties checks four rules. No device has two whole holders. The shares of a device add up to at most one
// device. Release frees exactly what was held. Nothing that is held or in quarantine is chosen.
func TestPoolProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := []func(int, int) LinkKind{allNVLink, twoIslands, oneSocket, twoSockets}
		devices := host("h", "H100", 80*gib, rapid.IntRange(1, 8).Draw(t, "n"), rapid.SampledFrom(kinds).Draw(t, "links"))
		devices = append(devices, host("t", "Tesla T4", 15*gib, rapid.IntRange(0, 2).Draw(t, "m"), oneSocket)...)
		p := mustPool(t, devices)
		uuid := rapid.SampledFrom(devices)
		held, quarantined := map[string]bool{}, map[string]bool{}
		serial := 0
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				need := drawNeed(t)
				got, ok := p.Choose(need)
				again, _ := p.Choose(need)
				if !slices.Equal(got, again) {
					t.Fatalf("the same pool chose %v, then %v", got, again)
				}
				if !ok {
					return
				}
				checkChoice(t, p, need, got, quarantined)
				serial++
				key := fmt.Sprint(serial)
				if err := p.Hold(key, got, Milli(need), need.GPUMemory); err != nil {
					t.Fatalf("chose devices that cannot be held: %v", err)
				}
				held[key] = true
			},
			"release": func(t *rapid.T) {
				for _, key := range slices.Sorted(maps.Keys(held)) {
					if rapid.Bool().Draw(t, "it") {
						p.Release(key)
						p.Release(key)
						delete(held, key)
					}
				}
			},
			"quarantine": func(t *rapid.T) { u := uuid.Draw(t, "u").UUID; p.Quarantine(u, "faulty"); quarantined[u] = true },
			"restore":    func(t *rapid.T) { u := uuid.Draw(t, "u").UUID; p.EndQuarantine(u); delete(quarantined, u) },
			"foreign": func(t *rapid.T) {
				p.Foreign(uuid.Draw(t, "u").UUID, job.Size(rapid.Int64Range(0, int64(20*gib)).Draw(t, "bytes")))
			},
			"update": func(t *rapid.T) {
				if err := p.Update(rapid.Permutation(devices).Draw(t, "order")); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) { checkPool(t, p, devices) },
		})
		for key := range held {
			p.Release(key)
		}
		for _, d := range devices {
			p.EndQuarantine(d.UUID)
			p.Foreign(d.UUID, 0)
		}
		for _, f := range p.Free() {
			if d := p.slots[p.index[f.UUID]]; f.Milli != Whole || f.Memory != d.Memory {
				t.Fatalf("all is released, but %v is left, want Milli %v and Memory %v", f, Whole, d.Memory)
			}
		}
		if len(p.Free()) != len(devices) {
			t.Fatal("the pool lost devices")
		}
	})
}

func drawNeed(t *rapid.T) job.Resources {
	need := job.Resources{GPUModel: rapid.SampledFrom([]string{"", "", "H100", "T4"}).Draw(t, "model")}
	if rapid.Bool().Draw(t, "whole") {
		need.GPUs = rapid.IntRange(1, 8).Draw(t, "gpus")
	} else {
		need.GPUShare = rapid.Float64Range(0.001, 0.999).Draw(t, "share")
	}
	if rapid.Bool().Draw(t, "memory") {
		need.GPUMemory = job.Size(rapid.Int64Range(1, int64(80*gib)).Draw(t, "bytes"))
	}
	return need
}

func checkChoice(t *rapid.T, p *Pool, need job.Resources, got []string, quarantined map[string]bool) {
	if len(got) != Count(need) {
		t.Fatalf("%d devices for %+v, want %v", len(got), need, Count(need))
	}
	for _, u := range got {
		s := p.slots[p.index[u]]
		milli, memory := s.left()
		if quarantined[u] || milli < Milli(need) || memory < Memory(need, s.Memory) || !Fits(s.Device, need) || need.GPUs > 0 && s.holders > 0 {
			t.Fatalf("chose %s for %+v, but %d and %s are left, held by %v", u, need, milli, memory, p.Holders(u))
		}
	}
	if ok, why := p.CouldEver(need); !ok {
		t.Fatalf("chose devices for a need that CouldEver refuses: %s", why)
	}
}

func checkPool(t *rapid.T, p *Pool, devices []Device) {
	for _, d := range devices {
		milli, memory, whole := 0, job.Size(0), 0
		for _, h := range p.Holders(d.UUID) {
			milli += h.Milli
			memory += h.Memory
			if h.Milli == Whole {
				whole++
			}
		}
		s := p.slots[p.index[d.UUID]]
		if whole > 1 || milli > Whole || memory > d.Memory || milli != s.milli || memory != s.memory {
			t.Fatalf("%s: %d whole holders, %d thousandths, %s; the pool has %d, %s, want the same and no more than the device", d.UUID, whole, milli, memory, s.milli, s.memory)
		}
	}
}
