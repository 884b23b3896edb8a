// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

type podList = corev1.PodList

// missing names the Pods with fewer DanmEps than their annotation has interfaces.
func missing(pods podList, endpoints []v1.DanmEp) []string {
	have := map[string]int{}
	for _, e := range endpoints {
		have[e.Spec.PodUID]++
	}
	var lacking []string
	for _, p := range pods.Items {
		if have[string(p.UID)] < interfaces(p) {
			lacking = append(lacking, p.Name)
		}
	}
	return lacking
}

func interfaces(p corev1.Pod) int {
	var asked []json.RawMessage
	if err := json.Unmarshal([]byte(p.Annotations[v1.InterfacesAnnotation]), &asked); err != nil {
		return 1 // the default network
	}
	return len(asked)
}

func printTable(out io.Writer, endpoints []v1.DanmEp) error {
	rows := slices.SortedFunc(slices.Values(endpoints), func(a, b v1.DanmEp) int {
		return cmp.Or(
			cmp.Compare(a.Spec.Host, b.Spec.Host),
			cmp.Compare(a.Spec.Pod, b.Spec.Pod),
			cmp.Compare(a.Spec.NetworkName, b.Spec.NetworkName),
		)
	})
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nPOD\tNODE\tINTERFACE\tNETWORK\tTYPE\tADDRESS\tIPV6\tMAC")
	for _, e := range rows {
		i := e.Spec.Interface
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Spec.Pod, e.Spec.Host, i.Name,
			e.Spec.NetworkName, e.Spec.NetworkType, dash(i.Address), dash(i.AddressIPv6), i.MacAddress)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	return nil
}

func dash(s string) string { return cmp.Or(s, "-") }

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
