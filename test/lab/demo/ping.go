// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// ErrNoAnswer says that a ping was not answered.
var ErrNoAnswer = errors.New("no answer")

// pingAll tries all routes and says of each how it went.
func pingAll(ctx context.Context, lab Lab, all []route, out io.Writer) error {
	if len(all) == 0 {
		return errors.New("ping: no two Pods on different nodes")
	}
	var errs []error
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nPING\tFROM\tTO\tADDRESS\tROUND TRIP (MIN/AVG/MAX)")
	for _, r := range all {
		took, err := r.ping(ctx, lab)
		if err != nil {
			errs = append(errs, err)
			took = "no answer"
		}
		fmt.Fprintf(w, "%s\t%s (%s)\t%s (%s)\t%s\t%s\n", r.network, r.from, r.fromNode, r.to, r.toNode, r.address, took)
	}
	return errors.Join(append(errs, w.Flush())...)
}

func (r route) ping(ctx context.Context, lab Lab) (string, error) {
	out, err := lab.Kubectl(ctx, "exec", r.from, "--", "ping", "-c", "3", "-i", "0.2", "-w", "10", r.address.String())
	if err != nil {
		return "", fmt.Errorf("ping from %s (%s) to %s (%s) on %s: %w: %w", r.from, r.fromNode, r.address, r.toNode, r.network, ErrNoAnswer, err)
	}
	return roundTrip(out), nil
}

// roundTrip finds the figures in the last line of busybox's ping.
func roundTrip(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	_, figures, _ := strings.Cut(lines[len(lines)-1], "= ")
	return figures
}
