// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// incarnation is a Node object from its creation to its deletion: a machine that
// registers again under its name begins another.
type incarnation struct {
	name, uid string
}

// isNode reports whether it can be of a Node at all. Entries such as "!quarantine"
// are not; and what has no UID was not written by us.
func (l incarnation) isNode() bool {
	return l.uid != "" && l.name != "" && !strings.HasPrefix(l.name, "!")
}

// incarnationOf is whose a DanmEp is.
func incarnationOf(ep *v1.DanmEp) incarnation { return incarnation{ep.Spec.Host, ep.Spec.HostUID} }

// nodeInfo is what is known of a Node object.
type nodeInfo struct {
	uid string
	// linux says that a daemon of ours may run there.
	linux bool
}

// nodesByName are the Node objects by name.
type nodesByName map[string]nodeInfo

// has reports whether that life goes on.
func (n nodesByName) has(l incarnation) bool {
	known, ok := n[l.name]
	return ok && known.uid == l.uid
}

// linuxNames returns those that may use addresses of ours, in order.
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

// emptyNodeMetadata is an empty Node as metadata.
func emptyNodeMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}

// nodeListTTL is how long a list of Nodes serves. A Node that is made within this
// time could as well be made after the recovery.
const nodeListTTL = 2 * time.Second

// nodeListCache are the Node objects as the API server has them. When etcd was restored
// all networks recover at once: one list serves those of a moment.
type nodeListCache struct {
	mu   sync.Mutex
	at   time.Time
	list nodesByName
}

// get returns the Nodes.
func (m *nodeListCache) get(ctx context.Context, c *Controller) (nodesByName, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list != nil && c.since(m.at) < nodeListTTL {
		return m.list, nil
	}
	at := c.cfg.Now()
	fresh, err := listNodes(ctx, c.direct)
	if err != nil {
		return nil, err
	}
	m.at, m.list = at, fresh
	return fresh, nil
}

// goneSince remembers since when lives that something rests on have been over.
type goneSince map[incarnation]time.Time

// observe takes a look at a time: it returns those of suspects that were over at each
// look for as long as grace, in no order. Who is not suspected any more is
// forgotten, so that the next absence counts from its own beginning.
func (a goneSince) observe(now time.Time, grace time.Duration, suspects map[incarnation]bool) []incarnation {
	maps.DeleteFunc(a, func(l incarnation, _ time.Time) bool { return !suspects[l] })
	var gone []incarnation
	for l := range suspects {
		if _, known := a[l]; !known {
			a[l] = now
		}
		if now.Sub(a[l]) >= grace {
			gone = append(gone, l)
		}
	}
	return gone
}

// goneIncarnations are the lives that are over for good; safe for concurrent use.
type goneIncarnations struct {
	mu           sync.RWMutex
	incarnations map[incarnation]bool
}

// set replaces them.
func (d *goneIncarnations) set(lives []incarnation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.incarnations = map[incarnation]bool{}
	for _, l := range lives {
		d.incarnations[l] = true
	}
}

// intersect returns those of lives that are over for good.
func (d *goneIncarnations) intersect(lives []incarnation) []incarnation {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var gone []incarnation
	for _, l := range lives {
		if d.incarnations[l] {
			gone = append(gone, l)
		}
	}
	return gone
}
