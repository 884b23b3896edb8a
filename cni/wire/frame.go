// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// headerSize is the size of a frame's header, which is the document's length, in bytes.
const headerSize = 4

// ErrFrame means that a frame is invalid: too large, empty, truncated, or not one JSON document.
var ErrFrame = errors.New("invalid frame")

// WriteFrame writes v as one frame, with a single call of w.Write: a header is only written if the
// whole document could be encoded.
func WriteFrame(w io.Writer, v any) error {
	doc, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(doc) > MaxFrame {
		return fmt.Errorf("encode frame: %w: %d bytes, must be at most %d", ErrFrame, len(doc), MaxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, headerSize+len(doc)), uint32(len(doc)))
	if _, err := w.Write(append(frame, doc...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// ReadFrame reads one frame into v. It returns io.EOF if the connection ends before the first byte,
// and ErrFrame for an invalid frame. It ignores keys that v does not have: during an upgrade
// plugin and daemon have different versions.
func ReadFrame(r io.Reader, v any) error {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return fmt.Errorf("read frame: %w", markTruncated(err))
	}
	size := binary.BigEndian.Uint32(header[:])
	if size == 0 || size > MaxFrame {
		return fmt.Errorf("read frame: %w: the header has a size of %d bytes, must be 1 to %d", ErrFrame, size, MaxFrame)
	}
	// The buffer grows with the received bytes: the size in the header is not trusted.
	var doc bytes.Buffer
	if _, err := io.CopyN(&doc, r, int64(size)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read frame: %d of %d bytes: %w", doc.Len(), size, markTruncated(err))
	}
	if err := json.Unmarshal(doc.Bytes(), v); err != nil {
		return fmt.Errorf("decode frame: %w: %w", ErrFrame, err)
	}
	return nil
}

// markTruncated adds ErrFrame to the error of a truncated frame. It does not change io.EOF, which
// means that the peer sent nothing, and errors of the connection.
func markTruncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return err
}
