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

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// life is a Node object from its creation to its deletion: a machine that
// registers again under its name begins another.
type life struct {
	name, uid string
}

// ofNode reports whether it can be of a Node at all. Entries such as "!quarantine"
// are not; and what has no UID was not written by us.
func (l life) ofNode() bool { return l.uid != "" && l.name != "" && !strings.HasPrefix(l.name, "!") }

// lifeOf is whose a DanmEp is.
func lifeOf(ep *v1.DanmEp) life { return life{ep.Spec.Host, ep.Spec.HostUID} }

// node is what is known of a Node object.
type node struct {
	uid string
	// linux says that a daemon of ours may run there.
	linux bool
}

// nodes are the Node objects by name.
type nodes map[string]node

// has reports whether that life goes on.
func (n nodes) has(l life) bool {
	known, ok := n[l.name]
	return ok && known.uid == l.uid
}

// names returns those that may use addresses of ours, in order.
func (n nodes) names() []string {
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
func listNodes(ctx context.Context, from client.Reader) (nodes, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	all := nodes{}
	for i := range list.Items {
		n := &list.Items[i]
		os, labelled := n.Labels[corev1.LabelOSStable]
		all[n.Name] = node{uid: string(n.UID), linux: !labelled || os == "linux"}
	}
	return all, nil
}

// nodeMeta is an empty Node as metadata.
func nodeMeta() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}

// membersFor is how long a list of Nodes serves. A Node that is made within this
// time could as well be made after the recovery.
const membersFor = 2 * time.Second

// members are the Node objects as the API server has them. When etcd was restored
// all networks recover at once: one list serves those of a moment.
type members struct {
	mu   sync.Mutex
	at   time.Time
	list nodes
}

// get returns the Nodes.
func (m *members) get(ctx context.Context, c *Controller) (nodes, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list != nil && c.since(m.at) < membersFor {
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

// absences remembers since when lives that something rests on have been over.
type absences map[life]time.Time

// look takes a look at a time: it returns those of suspects that were over at each
// look for as long as grace, in no order. Who is not suspected any more is
// forgotten, so that the next absence counts from its own beginning.
func (a absences) look(now time.Time, grace time.Duration, suspects map[life]bool) []life {
	maps.DeleteFunc(a, func(l life, _ time.Time) bool { return !suspects[l] })
	var gone []life
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

// departed are the lives that are over for good; safe for concurrent use.
type departed struct {
	mu    sync.RWMutex
	lives map[life]bool
}

// set replaces them.
func (d *departed) set(lives []life) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lives = map[life]bool{}
	for _, l := range lives {
		d.lives[l] = true
	}
}

// of returns those of lives that are over for good.
func (d *departed) of(lives []life) []life {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var gone []life
	for _, l := range lives {
		if d.lives[l] {
			gone = append(gone, l)
		}
	}
	return gone
}
