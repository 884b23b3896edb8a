// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// incarnation is a Node object from its creation to its deletion. A machine that registers again
// under the same name starts another one.
type incarnation struct {
	name, uid string
}

// isNode reports whether it can be a Node at all. Entries such as "!quarantine" are not, and an
// entry without a UID was not written by our daemons.
func (l incarnation) isNode() bool {
	return l.uid != "" && l.name != "" && !strings.HasPrefix(l.name, "!")
}

// incarnationOf returns the incarnation of the Node that created a DanmEp.
func incarnationOf(ep *v1.DanmEp) incarnation { return incarnation{ep.Spec.Host, ep.Spec.HostUID} }

// nodeInfo is what this package reads of a Node object.
type nodeInfo struct {
	uid string
	// linux reports whether our node daemon may run there.
	linux bool
}

// nodesByName are the Node objects by name.
type nodesByName map[string]nodeInfo

// has reports whether the Node still exists with the same UID.
func (n nodesByName) has(l incarnation) bool {
	known, ok := n[l.name]
	return ok && known.uid == l.uid
}

// linuxNames returns the nodes that may use addresses of ours, sorted. No daemon on another
// operating system would ever report in a recovery.
func (n nodesByName) linuxNames() []string {
	var names []string
	for name, known := range n {
		if known.linux {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// listNodes reads all Nodes as metadata.
func listNodes(ctx context.Context, from client.Reader) (nodesByName, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	all := nodesByName{}
	for i := range list.Items {
		n := &list.Items[i]
		os, labelled := n.Labels[corev1.LabelOSStable]
		all[n.Name] = nodeInfo{uid: string(n.UID), linux: !labelled || os == "linux"}
	}
	return all, nil
}

// emptyNodeMetadata returns an empty Node as metadata.
func emptyNodeMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}

// goneIncarnations are the incarnations that have been gone for the grace period. It is safe for
// concurrent use.
type goneIncarnations struct {
	mu           sync.RWMutex
	incarnations map[incarnation]bool
}

// set replaces the incarnations.
func (d *goneIncarnations) set(gone []incarnation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.incarnations = map[incarnation]bool{}
	for _, l := range gone {
		d.incarnations[l] = true
	}
}

// intersect returns those of candidates that are gone.
func (d *goneIncarnations) intersect(candidates []incarnation) []incarnation {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var gone []incarnation
	for _, l := range candidates {
		if d.incarnations[l] {
			gone = append(gone, l)
		}
	}
	return gone
}
