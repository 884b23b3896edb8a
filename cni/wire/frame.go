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

// headerSize is the length of the length, in bytes.
const headerSize = 4

// ErrFrame says that what arrived is not a frame of ours: too large, empty,
// cut short, or not one JSON document.
var ErrFrame = errors.New("bad frame")

// WriteFrame sends v as one frame in a single call of w.Write, so that a peer never
// sees a header without its writer having had the whole document.
func WriteFrame(w io.Writer, v any) error {
	doc, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(doc) > MaxFrame {
		return fmt.Errorf("encode frame: %w: %d bytes, at most %d are allowed", ErrFrame, len(doc), MaxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, headerSize+len(doc)), uint32(len(doc)))
	if _, err := w.Write(append(frame, doc...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// ReadFrame receives one frame into v. A connection that ends before the first byte
// gives io.EOF, anything that is not a frame ErrFrame. Keys that v does not
// have are ignored: during an upgrade plugin and daemon differ in version.
func ReadFrame(r io.Reader, v any) error {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return fmt.Errorf("read frame: %w", markTruncated(err))
	}
	size := binary.BigEndian.Uint32(header[:])
	if size == 0 || size > MaxFrame {
		return fmt.Errorf("read frame: %w: %d bytes announced, 1 to %d are allowed", ErrFrame, size, MaxFrame)
	}
	// The buffer grows with what arrives, not with what was announced.
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

// markTruncated marks a frame that was cut off as ErrFrame and leaves io.EOF, a peer
// that said nothing at all, and errors of the connection as they are.
func markTruncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return err
}
