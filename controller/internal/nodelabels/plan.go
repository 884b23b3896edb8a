// SPDX-License-Identifier: Apache-2.0

package nodelabels

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// maxNICs bounds the labels of one Node, with those that are still to be removed: a node writes its own
// NodeNetwork, and every kubelet and scheduler watches Nodes.
const maxNICs = 128

// nicsOf returns the NICs in a report that a label can name, at most maxNICs of them. The kernel allows more
// characters in a name than Kubernetes does.
func nicsOf(nn *v1.NodeNetwork) []string {
	var names []string
	for i := range nn.Status.NICs {
		name := nn.Status.NICs[i].Name
		if len(names) < maxNICs && len(validation.IsQualifiedName(v1.NICLabelPrefix+name)) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// staleLabel is a label for a NIC that the node does not report.
type staleLabel struct {
	node  types.UID
	label string
}

// change is what is to be written to a Node.
type change struct {
	name string
	uid  types.UID
	// labels are the values to set; nil removes the label.
	labels map[string]*string
}

// removes reports whether the change removes a label.
func (c *change) removes() bool {
	for _, value := range c.labels {
		if value == nil {
			return true
		}
	}
	return false
}

// plan returns the changes that make the labels of each Node name its NICs, and for each stale label the time
// since when it is stale. nics has the NICs by the Node's name, and before is what the last call returned as
// stale. A label is removed when it has been stale for delay.
func plan(nodes []metav1.PartialObjectMetadata, nics map[string][]string, before map[staleLabel]time.Time, now time.Time, delay time.Duration) (changes []change, stale map[staleLabel]time.Time) {
	stale = map[staleLabel]time.Time{}
	for i := range nodes {
		node := &nodes[i]
		c := change{name: node.Name, uid: node.UID, labels: map[string]*string{}}
		room := maxNICs
		for label := range node.Labels {
			nic, ours := strings.CutPrefix(label, v1.NICLabelPrefix)
			if !ours {
				continue
			}
			room--
			if slices.Contains(nics[node.Name], nic) {
				continue
			}
			key := staleLabel{node.UID, label}
			since, known := before[key]
			if !known {
				since = now
			}
			stale[key] = since
			if now.Sub(since) >= delay {
				c.labels[label] = nil
			}
		}
		addLabels(&c, node.Labels, nics[node.Name], room)
		if len(c.labels) > 0 {
			changes = append(changes, c)
		}
	}
	return changes, stale
}

// addLabels adds to a change the labels of NICs that a Node lacks, as far as it has room. A label that is removed
// in the same change still takes its room, because the removal may not happen.
func addLabels(c *change, labels map[string]string, nics []string, room int) {
	for _, nic := range nics {
		label := v1.NICLabelPrefix + nic
		value, exists := labels[label]
		switch {
		case exists && value == "":
		case exists:
			c.labels[label] = new(string)
		case room > 0:
			c.labels[label] = new(string)
			room--
		}
	}
}
