package api

// Reading the lines of a stream that lasts for hours and rarely has large lines.

import (
	"bufio"
	"io"
)

// lineBuffer is the size of the buffer in bytes. Most lines of a feed fit in it.
const lineBuffer = 2 << 10

// lineReader reads lines. A line that is longer than the buffer gets memory of its own, which is not kept afterwards.
type lineReader struct {
	r    *bufio.Reader
	most int // bytes of a line
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, lineBuffer), most}
}

// next returns a line without its newline. The line is valid until the next call. next returns bufio.ErrTooLong for a line
// beyond the bound, and io.EOF at the end or if the last line was cut off.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull { //nolint:errorlint // bufio returns it as it is
		line, err = l.long(line)
	}
	if err != nil {
		return nil, err
	}
	return line[:len(line)-1], nil
}

// long reads the rest of a line that does not fit in the buffer.
func (l *lineReader) long(begun []byte) ([]byte, error) {
	line := append(make([]byte, 0, 4*lineBuffer), begun...)
	for {
		more, err := l.r.ReadSlice('\n')
		if len(line)+len(more) > l.most {
			return nil, bufio.ErrTooLong
		}
		line = append(line, more...)
		if err != bufio.ErrBufferFull { //nolint:errorlint // bufio returns it as it is
			return line, err
		}
	}
}
