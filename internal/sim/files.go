package sim

// The files of jobs, which come to each host once.

// files are those of a job on their way to a host, or there.
type files struct {
	there   bool
	waiting []func() // called once the files are there
}

// bring calls begin once the host has the files of the job. It returns how many bytes must be copied to the host.
func (h *host) bring(s *submission, begin func()) (bytes int64) {
	if s.bytes == 0 || s.owner.at == h.index {
		begin()
		return 0
	}
	f := h.files[s.index]
	if f == nil {
		if h.files == nil {
			h.files = map[int]*files{}
		}
		f = &files{}
		h.files[s.index] = f
		w := h.w
		w.counts.Copies++
		w.counts.Copied += s.bytes
		bytes = s.bytes
		asked := w.now
		w.net.Copy(s.owner.at, h.index, s.bytes, func() {
			f.there = true
			w.counts.CopyTime += w.now - asked
			for _, begin := range f.waiting {
				begin()
			}
			f.waiting = nil
		})
	}
	if f.there {
		begin()
	} else {
		f.waiting = append(f.waiting, begin)
	}
	return bytes
}
