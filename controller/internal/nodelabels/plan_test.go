// SPDX-License-Identifier: Apache-2.0

package nodelabels

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// node returns the Node a with these labels, each "key=value".
func node(labels ...string) metav1.PartialObjectMetadata {
	n := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a", Labels: map[string]string{}}}
	for _, text := range labels {
		key, value, _ := strings.Cut(text, "=")
		n.Labels[key] = value
	}
	return n
}

// report returns a NodeNetwork with these NICs.
func report(name string, nics ...string) *v1.NodeNetwork {
	nn := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, nic := range nics {
		nn.Status.NICs = append(nn.Status.NICs, v1.NIC{Name: nic})
	}
	return nn
}

func TestNICsOf(t *testing.T) {
	t.Parallel()
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("nic%03d", i)
	}
	cases := map[string]struct {
		reason string
		nics   []string
		want   []string
	}{
		"Names":      {reason: "The usual names of NICs are labels.", nics: []string{"bond0", "enp1s0f0np0", "ens4", "eth0.5", "br_lan"}, want: []string{"bond0", "enp1s0f0np0", "ens4", "eth0.5", "br_lan"}},
		"NoLabel":    {reason: "The API server rejects other characters, and the whole write with them.", nics: []string{"a+b", "_x", "x-", "über", "a=b", "ens4"}, want: []string{"ens4"}},
		"Empty":      {reason: "A label has a name.", nics: []string{""}},
		"Long":       {reason: "A node may report a longer name than the kernel allows.", nics: []string{strings.Repeat("n", 64)}},
		"TooMany":    {reason: "A compromised node must not fill its Node.", nics: many, want: many[:maxNICs]},
		"Slash":      {reason: "A name must not change the prefix.", nics: []string{"a/b"}},
		"NoNICs":     {reason: "The node reports none."},
		"Kubernetes": {reason: "The name is not a prefix.", nics: []string{"kubernetes.io"}, want: []string{"kubernetes.io"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, nicsOf(report("a", tc.nics...))); diff != "" {
				t.Errorf("%s\nnicsOf (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	const delay = time.Minute
	ens4 := staleLabel{"uid-a", "nics.danm.io/ens4"}
	cases := map[string]struct {
		reason string
		node   metav1.PartialObjectMetadata
		nics   map[string][]string
		before map[staleLabel]time.Time
		want   string // label=value to set, -label to remove
		stale  map[staleLabel]time.Time
	}{
		"New":        {reason: "The node has reported its NICs.", node: node("zone=x"), nics: map[string][]string{"a": {"ens4", "ens5"}}, want: "nics.danm.io/ens4= nics.danm.io/ens5="},
		"Unchanged":  {reason: "The labels are as reported.", node: node("zone=x", "nics.danm.io/ens4="), nics: map[string][]string{"a": {"ens4"}}},
		"Value":      {reason: "A nodeSelector names the value.", node: node("nics.danm.io/ens4=yes"), nics: map[string][]string{"a": {"ens4"}}, want: "nics.danm.io/ens4="},
		"NoReport":   {reason: "A new node has none yet, and no label.", node: node("zone=x"), nics: map[string][]string{"b": {"ens4"}}},
		"Gone":       {reason: "A NIC may come back in a moment.", node: node("nics.danm.io/ens4="), nics: map[string][]string{"a": {"ens5"}}, want: "nics.danm.io/ens5=", stale: map[staleLabel]time.Time{ens4: now}},
		"Waiting":    {reason: "The delay is not over.", node: node("nics.danm.io/ens4="), before: map[staleLabel]time.Time{ens4: now.Add(-delay + 1)}, stale: map[staleLabel]time.Time{ens4: now.Add(-delay + 1)}},
		"Removed":    {reason: "The NIC, or the NodeNetwork, has been gone for the delay.", node: node("nics.danm.io/ens4=", "zone=x"), before: map[staleLabel]time.Time{ens4: now.Add(-delay)}, want: "-nics.danm.io/ens4", stale: map[staleLabel]time.Time{ens4: now.Add(-delay)}},
		"Back":       {reason: "The NIC is there again: a later absence starts a new delay.", node: node("nics.danm.io/ens4="), nics: map[string][]string{"a": {"ens4"}}, before: map[staleLabel]time.Time{ens4: now.Add(-delay)}},
		"OtherNode":  {reason: "A new Node of the name has waited for nothing.", node: node("nics.danm.io/ens4="), before: map[staleLabel]time.Time{{"uid-old", "nics.danm.io/ens4"}: now.Add(-delay)}, stale: map[staleLabel]time.Time{ens4: now}},
		"Foreign":    {reason: "Labels of others stay.", node: node("nics.example.com/ens4=", "danm.io/ens4=", "nics.danm.io=x")},
		"LikePrefix": {reason: "A label with the prefix that no NIC can have goes, too.", node: node("nics.danm.io/made.up="), before: map[staleLabel]time.Time{{"uid-a", "nics.danm.io/made.up"}: now.Add(-delay)}, want: "-nics.danm.io/made.up", stale: map[staleLabel]time.Time{{"uid-a", "nics.danm.io/made.up"}: now.Add(-delay)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes, stale := plan([]metav1.PartialObjectMetadata{tc.node}, tc.nics, tc.before, now, delay)
			var got []string
			for _, c := range changes {
				if c.name != tc.node.Name || c.uid != tc.node.UID {
					t.Errorf("%s\nchange of Node %s, UID %s", tc.reason, c.name, c.uid)
				}
				for label, value := range c.labels {
					if value == nil {
						got = append(got, "-"+label)
					} else {
						got = append(got, label+"="+*value)
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s\nchanges (-want +got):\n%s", tc.reason, diff)
			}
			if tc.stale == nil {
				tc.stale = map[staleLabel]time.Time{}
			}
			if diff := cmp.Diff(tc.stale, stale, cmp.AllowUnexported(staleLabel{})); diff != "" {
				t.Errorf("%s\nstale (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A compromised node reports other NICs again and again. Its Node never has more labels than the bound: those that
// wait for their removal count, too.
func TestLabelsOfANodeAreBounded(t *testing.T) {
	t.Parallel()
	n, now, stale := node("zone=x"), time.Unix(1000, 0), map[staleLabel]time.Time(nil)
	most, written := 0, []string(nil)
	for round := range 50 {
		var nics []string
		for i := range 100 {
			nics = append(nics, fmt.Sprintf("r%dn%d", round, i))
		}
		var changes []change
		changes, stale = plan([]metav1.PartialObjectMetadata{n}, map[string][]string{"a": nics}, stale, now, time.Minute)
		written = append(written, apply(&n, changes)...)
		most = max(most, len(n.Labels)-1)
		now = now.Add(time.Second)
	}
	if most != maxNICs {
		t.Errorf("the Node had up to %d labels of NICs, want %d", most, maxNICs)
	}
	if len(stale) > maxNICs || len(written) > maxNICs {
		t.Errorf("%d labels wait for their removal, and %d were written within the delay, want at most %d", len(stale), len(written), maxNICs)
	}
	now = now.Add(time.Minute)
	own := map[string][]string{"a": {"ens4"}}
	for range 3 { // the first comparison makes room, and the next one uses it
		changes, after := plan([]metav1.PartialObjectMetadata{n}, own, stale, now, time.Minute)
		stale = after
		apply(&n, changes)
		now = now.Add(2 * time.Minute)
	}
	if diff := cmp.Diff(node("zone=x", "nics.danm.io/ens4=").Labels, n.Labels); diff != "" {
		t.Errorf("the node reports its own NIC again\nlabels (-want +got):\n%s", diff)
	}
}

// apply makes the changes on a Node, and returns the labels that it has set.
func apply(n *metav1.PartialObjectMetadata, changes []change) (set []string) {
	for _, c := range changes {
		for label, value := range c.labels {
			if value == nil {
				delete(n.Labels, label)
				continue
			}
			n.Labels[label] = *value
			set = append(set, label)
		}
	}
	return set
}

// Kubelets write Nodes all the time, and daemons their NodeNetworks: such writes start no comparison.
func TestEventsThatMatter(t *testing.T) {
	t.Parallel()
	before, after := node("zone=x", "nics.danm.io/ens4="), node("zone=y", "nics.danm.io/ens4=")
	if labelsDiffer(&before, &after) {
		t.Error("another label starts a comparison")
	}
	after.Labels["nics.danm.io/ens4"] = "x"
	if !labelsDiffer(&before, &after) {
		t.Error("a changed label of a NIC starts no comparison")
	}
	same := report("a", "ens4")
	same.Status.NICs[0].Addresses = []string{"10.0.0.1/24"}
	if nicsDiffer(report("a", "ens4"), same) {
		t.Error("an address starts a comparison")
	}
	if !nicsDiffer(report("a", "ens4"), report("a", "ens4", "ens5")) {
		t.Error("a new NIC starts no comparison")
	}
}
