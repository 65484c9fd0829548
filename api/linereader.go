package api

// Reading the lines of a stream that lives for hours and seldom says much.

import (
	"bufio"
	"io"
)

// lineBuffer holds most lines of a feed: in bytes.
const lineBuffer = 2 << 10

// lineReader reads lines. A longer one than its buffer is collected apart, so that what a large line took is not kept.
type lineReader struct {
	r    *bufio.Reader
	most int // bytes of a line
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, lineBuffer), most}
}

// next returns a line without its end, valid until the next call. It returns bufio.ErrTooLong for one beyond the bound, and
// io.EOF at the end, also instead of a line that was cut off.
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

// long reads on in a line that has begun.
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
