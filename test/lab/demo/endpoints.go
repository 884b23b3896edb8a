// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

type podList = corev1.PodList

// missingEndpoints names the Pods with fewer DanmEps than their annotation has interfaces.
func missingEndpoints(pods podList, endpoints []v1.DanmEp) []string {
	have := map[string]int{}
	for _, e := range endpoints {
		have[e.Spec.PodUID]++
	}
	var lacking []string
	for _, p := range pods.Items {
		if have[string(p.UID)] < requestedInterfaces(p) {
			lacking = append(lacking, p.Name)
		}
	}
	return lacking
}

func requestedInterfaces(p corev1.Pod) int {
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
			e.Spec.NetworkName, e.Spec.NetworkType, orDash(i.Address), orDash(i.AddressIPv6), i.MacAddress)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	return nil
}

func orDash(s string) string { return cmp.Or(s, "-") }
