// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

const (
	// maxCauses bounds the causes in a message, maxNodes the nodes of each cause, and
	// maxNamesLength the bytes of their names: an Event has at most 1 KiB.
	maxCauses, maxNodes, maxNamesLength = 2, 3, 150
	// notReported is the cause of a node whose report does not contain the network.
	notReported = "the node has not reported on this network yet"
)

// needs is what a network needs on each node.
type needs struct {
	// Link is true for a network with a host link.
	Link bool
	// Delegate is what a network of another CNI plugin needs.
	Delegate delegate
}

// delegate names a CNI plugin and its configuration; it is zero for no plugin.
type delegate struct{ networkType, networkID string }

// any reports whether the network needs something. Only such a network has a condition of this
// package.
func (n needs) any() bool { return n.Link || n.delegates() }

// delegates reports whether the network needs a plugin.
func (n needs) delegates() bool { return n.Delegate != delegate{} }

// problem returns why a node does not have what the network needs; "" when it has that.
func (n needs) problem(network string, r *nodeReport) string {
	fault, reported := r.delegates[n.Delegate]
	switch text, wrong := r.problems[network]; {
	case wrong:
		return text
	case n.delegates() && fault != "":
		return fault
	case n.delegates() && !reported, n.Link && !r.up[network]:
		return notReported
	}
	return ""
}

// readyCondition returns the condition Ready of a network, without times and generation. Equal reports
// give an equal condition.
func readyCondition(network string, required needs, nodes map[string]*nodeReport) metav1.Condition {
	c := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonLinksUp, Message: "ready on all nodes"}
	notReady := v1.ReasonLinksNotUp
	if required.delegates() {
		c.Reason, notReady = v1.ReasonDelegateInstalled, v1.ReasonDelegateNotInstalled
	}
	if len(nodes) == 0 {
		c.Status, c.Reason = metav1.ConditionUnknown, v1.ReasonNoNodeReports
		c.Message = "no node has reported its links: check that patchbayd runs"
		return c
	}
	byCause, ready := map[string][]string{}, 0
	for name, r := range nodes {
		if text := required.problem(network, r); text != "" {
			byCause[text] = append(byCause[text], name)
			continue
		}
		ready++
	}
	if ready == len(nodes) {
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, notReady
	c.Message = fmt.Sprintf("ready on %d of %d nodes; %s", ready, len(nodes), causesMessage(byCause))
	return c
}

// causesMessage names the most frequent causes, and their nodes.
func causesMessage(byCause map[string][]string) string {
	list := slices.SortedFunc(maps.Keys(byCause), func(a, b string) int {
		if d := len(byCause[b]) - len(byCause[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var texts []string
	for _, text := range list[:min(len(list), maxCauses)] {
		texts = append(texts, joinNames(byCause[text])+": "+text)
	}
	if more := len(list) - maxCauses; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more causes: kubectl get nodenetworks", more))
	}
	return strings.Join(texts, "; ")
}

func joinNames(nodes []string) string {
	slices.Sort(nodes)
	text := ""
	for i, name := range nodes {
		if i == maxNodes || i > 0 && len(text)+len(name) > maxNamesLength {
			return fmt.Sprintf("%s and %d more", text, len(nodes)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += name
	}
	return text
}
