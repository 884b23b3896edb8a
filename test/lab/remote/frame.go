// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

type kind byte

// Kinds of frames.
const (
	kindRequest kind = iota + 1
	kindInput
	kindInputEnd
	kindOutput
	kindErrorOutput
	kindExit
)

const (
	headerSize = 5
	// maxFrame bounds what a reader buffers; longer data is split.
	maxFrame = 64 << 10
)

// ErrProtocol says that the other side sent what makes no sense.
var ErrProtocol = errors.New("protocol violated")

// frames writes frames from several goroutines.
type frames struct {
	mu  sync.Mutex
	out io.Writer
}

func (f *frames) write(k kind, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	frame := make([]byte, headerSize, headerSize+len(data))
	frame[0] = byte(k)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(data)))
	if _, err := f.out.Write(append(frame, data...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

func (f *frames) writeJSON(k kind, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(raw) > maxFrame {
		return fmt.Errorf("encode frame: %d bytes are too many: %w", len(raw), ErrProtocol)
	}
	return f.write(k, raw)
}

// stream is a writer whose bytes travel as frames of one kind.
type stream struct {
	frames *frames
	kind   kind
}

func (s stream) Write(data []byte) (int, error) {
	for done := 0; done < len(data); {
		end := min(done+maxFrame, len(data))
		if err := s.frames.write(s.kind, data[done:end]); err != nil {
			return done, err
		}
		done = end
	}
	return len(data), nil
}

// readFrame returns io.EOF only between frames.
func readFrame(in io.Reader) (kind, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(in, header[:]); errors.Is(err, io.EOF) {
		return 0, nil, io.EOF
	} else if err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > maxFrame {
		return 0, nil, fmt.Errorf("read frame of %d bytes: %w", size, ErrProtocol)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(in, data); err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	return kind(header[0]), data, nil
}
