// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// reportStartup prints the time until the plugin's first byte on the socket, the duration of a program that
// does nothing, and the size of the plugin.
func reportStartup(ctx context.Context, o options, out io.Writer) (err error) {
	info, err := os.Stat(o.plugin)
	if err != nil {
		return err
	}
	path := filepath.Join(o.dir, "speak")
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var patchbay, empty measure.Series
	for range o.runs {
		var first, none []time.Duration
		for range o.pods {
			a, errA := firstByte(ctx, o.plugin, path, l)
			b, errB := timeEmptyProgram(ctx)
			if err := errors.Join(errA, errB); err != nil {
				return err
			}
			first, none = append(first, a), append(none, b)
		}
		patchbay = append(patchbay, measure.Millis(measure.Quantile(first, 0.5)))
		empty = append(empty, measure.Millis(measure.Quantile(none, 0.5)))
	}
	return measure.Table{
		Title: fmt.Sprintf("plugin, %.1f MB: from its start to its first byte on the daemon's socket; %d starts × %d runs",
			float64(info.Size())/1e6, o.pods, o.runs),
		Columns: []string{"p50 ms"}, LessIsBetter: true,
		Rows: []measure.Row{
			{Name: "patchbay, to its first byte", Columns: []measure.Series{patchbay}},
			{Name: "/bin/true, to its end", Columns: []measure.Series{empty}},
		},
	}.Write(out)
}

// firstByte starts the plugin, waits for its request and responds to it.
func firstByte(ctx context.Context, plugin, socket string, l net.Listener) (took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Env = []string{"CNI_COMMAND=DEL", "CNI_CONTAINERID=c", "CNI_IFNAME=eth0"}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"patchbay","socket":%q}`, socket))
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start plugin: %w", err)
	}
	defer func() { err = errors.Join(err, cmd.Wait()) }()
	conn, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.Read(make([]byte, 1<<16)); err != nil {
		return 0, err
	}
	took = time.Since(start)
	return took, wire.WriteFrame(conn, &wire.Response{})
}

// timeEmptyProgram returns the duration of a program that does nothing.
func timeEmptyProgram(ctx context.Context) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "/bin/true")
	start := time.Now()
	err := cmd.Run()
	return time.Since(start), err
}
