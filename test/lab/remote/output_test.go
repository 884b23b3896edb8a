// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"os/exec"
	"testing"
	"time"
)

// Somebody in the background has the pipe, and who reads is slow: all that was
// written before the command's end arrives nevertheless, and nobody waits for more.
func TestDrain(t *testing.T) {
	t.Parallel()
	const size = 60_000 // less than a pipe takes
	slow := &slowWriter{read: make(chan struct{})}
	both, err := attach(&exec.Cmd{}, slow, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	defer both.close()
	background := both[0].write
	both[0].write = both[1].write // its end is closed, the background's is not
	if _, err := background.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	defer background.Close()
	both.forward()
	drained := make(chan struct{})
	go func() { defer close(drained); both.drain() }()
	select {
	case <-drained:
		t.Fatal("drained before anything was read")
	case <-time.After(50 * time.Millisecond):
	}
	close(slow.read)
	<-drained
	if slow.got != size {
		t.Errorf("%d bytes arrived, want %d", slow.got, size)
	}
}

// slowWriter takes nothing before read is closed.
type slowWriter struct {
	read chan struct{}
	got  int
}

func (w *slowWriter) Write(data []byte) (int, error) {
	<-w.read
	w.got += len(data)
	return len(data), nil
}
