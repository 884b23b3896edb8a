// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

// frame returns a frame of doc with the size in its header, which may be wrong.
func frame(size uint32, doc string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, size), doc...)
}

func TestRead(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		in     []byte
		want   wire.Request
		err    error
	}{
		"Request": {
			reason: "A frame is a length and a document.",
			in:     frame(17, `{"command":"DEL"}`), want: wire.Request{Command: "DEL"},
		},
		"UnknownKey": {
			reason: "A newer plugin may send keys that this daemon does not have.",
			in:     frame(25, `{"command":"DEL","new":1}`), want: wire.Request{Command: "DEL"},
		},
		"Nothing":    {reason: "A peer that sends nothing sends no invalid frame.", in: nil, err: io.EOF},
		"HalfLength": {reason: "The connection ended in the header.", in: []byte{0, 0}, err: wire.ErrFrame},
		"HalfDocument": {
			reason: "The connection ended in the document.",
			in:     frame(17, `{"command"`), err: wire.ErrFrame,
		},
		"HalfIsEnd":    {reason: "The error wraps the end of the connection.", in: frame(17, `{`), err: io.ErrUnexpectedEOF},
		"Empty":        {reason: "No document has 0 bytes.", in: frame(0, ""), err: wire.ErrFrame},
		"TooLarge":     {reason: "The size is checked before the document is read.", in: frame(wire.MaxFrame+1, "{}"), err: wire.ErrFrame},
		"Huge":         {reason: "A frame of 4 GiB must not be allocated.", in: frame(math.MaxUint32, "{}"), err: wire.ErrFrame},
		"TwoDocuments": {reason: "A frame has one document.", in: frame(4, "{}{}"), err: wire.ErrFrame},
		"NotJSON":      {reason: "The peer uses another protocol.", in: frame(3, "GET"), err: wire.ErrFrame},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got wire.Request
			err := wire.ReadFrame(bytes.NewReader(tc.in), &got)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s Read got error %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); err == nil && diff != "" {
				t.Errorf("%s Read: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWriteRejectsInvalidFrames(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := wire.WriteFrame(&out, wire.Request{Args: strings.Repeat("a", wire.MaxFrame)})
	if !errors.Is(err, wire.ErrFrame) || out.Len() != 0 {
		t.Errorf("Write of more than MaxFrame: got error %v after %d bytes, want ErrFrame and none", err, out.Len())
	}
	if err := wire.WriteFrame(&out, wire.Request{Config: json.RawMessage("{")}); err == nil {
		t.Error("Write of a configuration that is not JSON: got no error")
	}
}

// failing is a connection whose writes fail.
type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

func TestWriteKeepsTheCause(t *testing.T) {
	t.Parallel()
	if err := wire.WriteFrame(failing{io.ErrClosedPipe}, wire.Request{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write to a broken connection: got %v, want %v in it", err, io.ErrClosedPipe)
	}
}

// ReadFrame returns the request that WriteFrame wrote.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "config"))
		if err != nil {
			t.Fatal(err)
		}
		want := wire.Request{
			Command:     rapid.String().Draw(t, "command"),
			ContainerID: rapid.String().Draw(t, "container"),
			Args:        rapid.String().Draw(t, "args"),
			Config:      config,
		}
		var conn bytes.Buffer
		if err := wire.WriteFrame(&conn, want); err != nil {
			t.Fatal(err)
		}
		var got wire.Request
		if err := wire.ReadFrame(&conn, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || conn.Len() != 0 {
			t.Fatalf("%d bytes were not read, -want +got:\n%s", conn.Len(), diff)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(frame(2, "{}"))
	f.Add(frame(25, `{"command":"DEL","config":null}`))
	f.Add(frame(math.MaxUint32, "{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var req wire.Request
		if err := wire.ReadFrame(bytes.NewReader(in), &req); err != nil {
			return
		}
		if err := wire.WriteFrame(io.Discard, req); err != nil && !errors.Is(err, wire.ErrFrame) {
			t.Errorf("a request that was read cannot be written: %v", err)
		}
	})
}
