// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"maps"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// report is what one node says of networks, by network.Ref.String.
type report struct {
	up map[string]bool
	// wrong says why a network is not up.
	wrong map[string]string
}

// reportOf reads a NodeNetwork; slimmed or not.
func reportOf(nn *v1.NodeNetwork) *report {
	r := &report{up: map[string]bool{}, wrong: map[string]string{}}
	for i := range nn.Status.Links {
		l := &nn.Status.Links[i]
		text := l.Error
		if text == "" {
			text = l.Name + " is down"
		}
		for _, n := range l.Networks {
			if l.State == v1.LinkUp {
				r.up[n] = true
			} else {
				r.wrong[n] = text
			}
		}
	}
	for _, refused := range nn.Status.Refused {
		r.wrong[refused.Network] = refused.Error
	}
	return r
}

// changed are the networks that two reports of a node say different things of.
func changed(a, b *report) []string {
	differ := map[string]bool{}
	for n := range a.up {
		differ[n] = !b.up[n]
	}
	for n := range b.up {
		differ[n] = !a.up[n]
	}
	for n, text := range a.wrong {
		differ[n] = differ[n] || b.wrong[n] != text
	}
	for n, text := range b.wrong {
		differ[n] = differ[n] || a.wrong[n] != text
	}
	maps.DeleteFunc(differ, func(_ string, d bool) bool { return !d })
	return slices.Sorted(maps.Keys(differ))
}
