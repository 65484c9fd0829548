//go:build cgo && !nonvml

package nvml

// NVLink and PCIe links between the cards.

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
)

// link fills in the links between all units.
func (c *collector) link(units []unit) {
	known := map[[2]*card]gpu.Link{}
	for _, u := range units {
		if u.card.peers == nil {
			c.readNVLinks(u.card)
		}
	}
	for i := range units {
		units[i].device.Links = make([]gpu.Link, 0, len(units)-1)
		for j := range units {
			if i == j {
				continue
			}
			a, b := units[i], units[j]
			l, ok := known[[2]*card{a.card, b.card}]
			if !ok {
				l = c.between(a.card, b.card)
				known[[2]*card{a.card, b.card}], known[[2]*card{b.card, a.card}] = l, l
			}
			if l.Kind == gpu.LinkNVLink && (a.device.Parent != "" || b.device.Parent != "") {
				l = gpu.Link{Kind: c.ancestor(a.card, b.card)} // instances cannot use NVLink
			}
			l.To = b.device.UUID
			units[i].device.Links = append(units[i].device.Links, l)
		}
	}
}

// readNVLinks counts the card's active NVLinks by the other end. If one cannot be read, it takes those of the last list.
func (c *collector) readNVLinks(crd *card) {
	crd.switches, crd.peers = 0, map[string]int{}
	if !c.has("nvmlDeviceGetNvLinkState") || !c.has("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return
	}
	for i := range nvml.NVLINK_MAX_LINKS {
		state, ret := crd.handle.GetNvLinkState(i)
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			return // no more links
		}
		if ret == nvml.SUCCESS && state == nvml.FEATURE_ENABLED {
			ret = c.countNVLink(crd, i)
		}
		if was := c.before(crd.device.UUID); !told(ret) && was != nil && was.peers != nil {
			crd.switches, crd.peers = was.switches, was.peers
			return
		}
	}
}

// countNVLink counts an active NVLink of the card by its other end.
func (c *collector) countNVLink(crd *card, i int) nvml.Return {
	if c.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
		kind, ret := crd.handle.GetNvLinkRemoteDeviceType(i)
		if !told(ret) {
			return ret
		}
		if ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			crd.switches++
			return ret
		}
	}
	remote, ret := crd.handle.GetNvLinkRemotePciInfo(i)
	if ret == nvml.SUCCESS {
		crd.peers[busID(remote)]++
	}
	return ret
}

// between returns the link between two cards; it is symmetric.
func (c *collector) between(a, b *card) gpu.Link {
	if a == b {
		return gpu.Link{Kind: gpu.LinkBoard}
	}
	if a.device.PCI != "" && b.device.PCI != "" {
		if n := min(a.peers[b.device.PCI], b.peers[a.device.PCI]); n > 0 {
			return gpu.Link{Kind: gpu.LinkNVLink, NVLinks: n}
		}
	}
	if n := min(a.switches, b.switches); n > 0 {
		return gpu.Link{Kind: gpu.LinkNVLink, NVLinks: n}
	}
	return gpu.Link{Kind: c.ancestor(a, b)}
}

// ancestor returns the nearest common ancestor of two cards on PCIe.
func (c *collector) ancestor(a, b *card) gpu.LinkKind {
	if a == b {
		return gpu.LinkBoard
	}
	level, ret := nvml.TOPOLOGY_SYSTEM, nvml.ERROR_NOT_SUPPORTED
	if c.has("nvmlDeviceGetTopologyCommonAncestor") {
		level, ret = a.handle.GetTopologyCommonAncestor(b.handle)
	}
	if ret == nvml.SUCCESS {
		switch level {
		case nvml.TOPOLOGY_INTERNAL:
			return gpu.LinkBoard
		case nvml.TOPOLOGY_SINGLE, nvml.TOPOLOGY_MULTIPLE:
			return gpu.LinkSwitch
		case nvml.TOPOLOGY_HOSTBRIDGE:
			return gpu.LinkBridge
		case nvml.TOPOLOGY_NODE:
			return gpu.LinkNUMA
		case nvml.TOPOLOGY_SYSTEM:
			return gpu.LinkSystem
		}
	}
	if kind, known := c.ancestorBefore(a, b); known && !told(ret) {
		return kind
	}
	if a.device.NUMA >= 0 && a.device.NUMA == b.device.NUMA {
		return gpu.LinkNUMA
	}
	return gpu.LinkSystem
}

// ancestorBefore returns the nearest common ancestor of two cards by the last list.
func (c *collector) ancestorBefore(a, b *card) (gpu.LinkKind, bool) {
	ends := map[string]bool{} // the units of b
	for _, u := range c.units {
		ends[u.device.UUID] = u.card.device.UUID == b.device.UUID
	}
	for _, u := range c.units {
		if u.card.device.UUID != a.device.UUID {
			continue
		}
		for _, l := range u.device.Links {
			if ends[l.To] && l.Kind != gpu.LinkNVLink {
				return l.Kind, true
			}
		}
	}
	return "", false
}
