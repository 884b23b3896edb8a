// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// ErrNoAnswer says that a ping was not answered.
var ErrNoAnswer = errors.New("no answer")

// route is one ping to try: from a Pod to another one's address on another node.
type route struct {
	network, from, fromNode, to, toNode string
	address                             netip.Addr
}

// routes are a ping in each direction between two nodes for each network and family.
func routes(endpoints []v1.DanmEp) []route {
	var all []route
	seen := map[string]bool{}
	for _, from := range endpoints {
		for _, to := range endpoints {
			if from.Spec.NetworkUID != to.Spec.NetworkUID || from.Spec.Host == to.Spec.Host {
				continue
			}
			for _, prefix := range []string{to.Spec.Interface.Address, to.Spec.Interface.AddressIPv6} {
				p, err := netip.ParsePrefix(prefix)
				key := fmt.Sprint(from.Spec.NetworkUID, from.Spec.Host, to.Spec.Host, p.Addr().Is6())
				if err != nil || seen[key] {
					continue
				}
				seen[key] = true
				all = append(all, route{
					network: from.Spec.NetworkName, from: from.Spec.Pod, fromNode: from.Spec.Host,
					to: to.Spec.Pod, toNode: to.Spec.Host, address: p.Addr(),
				})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b route) int { return cmp.Compare(a.network, b.network) })
	return all
}

// pingAll tries all routes at once and prints the result of each.
func pingAll(ctx context.Context, lab Lab, all []route, out io.Writer) error {
	if len(all) == 0 {
		return errors.New("ping: no two Pods on different nodes")
	}
	took, errs := make([]string, len(all)), make([]error, len(all))
	var group sync.WaitGroup
	for i, r := range all {
		group.Go(func() {
			if took[i], errs[i] = r.ping(ctx, lab); errs[i] != nil {
				took[i] = "no answer"
			}
		})
	}
	group.Wait()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nPING\tFROM\tTO\tADDRESS\tROUND TRIP (MIN/AVG/MAX)")
	for i, r := range all {
		fmt.Fprintf(w, "%s\t%s (%s)\t%s (%s)\t%s\t%s\n", r.network, r.from, r.fromNode, r.to, r.toNode, r.address, took[i])
	}
	return errors.Join(errors.Join(errs...), w.Flush())
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
