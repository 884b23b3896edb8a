// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// nodeIndex has the Nodes with each label of a NIC, by which podMutator decides whether Pods need node affinity.
// It watches the metadata of Nodes in the manager's cache, which every replica fills. It is safe for concurrent use.
type nodeIndex struct {
	cache cache.Cache

	mu sync.RWMutex
	// synced is true when all Nodes have been read once.
	synced bool
	// nics are the NICs of each Node whose labels name some, nodes the names of the Nodes by NIC.
	nics  map[string][]string
	nodes map[string]map[string]bool
}

func newNodeIndex(c cache.Cache) *nodeIndex {
	return &nodeIndex{cache: c, nics: map[string][]string{}, nodes: map[string]map[string]bool{}}
}

// nicsToRequire returns those NICs of a Pod whose labels its node affinity should require: those that some Nodes
// have and others lack.
//
// A Node without labels of NICs does not count: its daemon has not reported its NICs yet, or the controller may
// not label it. If it counted, the first Node with a label would get all Pods. A NIC that no Node has is left out:
// it has just been installed, or its name is no label, or is wrong. If no Node has all the NICs, nicsToRequire
// returns none. In both cases the Pod would wait for a label without a message that names a NIC. Without the
// requirement, the error of a node names it.
func (x *nodeIndex) nicsToRequire(nics []string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.synced {
		return nil
	}
	var required []string
	for _, nic := range nics {
		if count := len(x.nodes[nic]); count > 0 && count < len(x.nics) {
			required = append(required, nic)
		}
	}
	if !x.anyNodeHas(required) {
		return nil
	}
	return required
}

// anyNodeHas reports whether a Node has all of these NICs.
func (x *nodeIndex) anyNodeHas(nics []string) bool {
	if len(nics) == 0 {
		return false
	}
	rarest := slices.MinFunc(nics, func(a, b string) int { return cmp.Compare(len(x.nodes[a]), len(x.nodes[b])) })
	for node := range x.nodes[rarest] {
		if !slices.ContainsFunc(nics, func(nic string) bool { return !x.nodes[nic][node] }) {
			return true
		}
	}
	return false
}

// errNodesNotSynced is returned until all Nodes have been read.
var errNodesNotSynced = errors.New("the controller has just started and is reading the Nodes")

// checkSynced returns an error until all Nodes have been read once.
func (x *nodeIndex) checkSynced() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.synced {
		return errNodesNotSynced
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica needs the index.
func (x *nodeIndex) NeedLeaderElection() bool { return false }

// Start runs until ctx ends.
func (x *nodeIndex) Start(ctx context.Context) error {
	handler, err := x.addEventHandler(ctx)
	if err != nil && ctx.Err() == nil { // a cache that is stopped may return any error
		return fmt.Errorf("watch Nodes: %w", err)
	}
	if err == nil && toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		x.mu.Lock()
		x.synced = true
		x.mu.Unlock()
	}
	<-ctx.Done()
	return nil
}

// addEventHandler handles the events of Nodes' metadata.
func (x *nodeIndex) addEventHandler(ctx context.Context) (toolscache.ResourceEventHandlerRegistration, error) {
	node := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	informer, err := x.cache.GetInformer(ctx, node, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: x.put, UpdateFunc: func(_, obj any) { x.put(obj) }, DeleteFunc: x.remove,
	})
}

// put stores the labels of a Node.
func (x *nodeIndex) put(obj any) {
	node, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(node.Name)
	for label := range node.Labels {
		nic, isNIC := strings.CutPrefix(label, v1.NICLabelPrefix)
		if !isNIC {
			continue
		}
		x.nics[node.Name] = append(x.nics[node.Name], nic)
		if x.nodes[nic] == nil {
			x.nodes[nic] = map[string]bool{}
		}
		x.nodes[nic][node.Name] = true
	}
}

// remove removes a deleted Node.
func (x *nodeIndex) remove(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	node, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(node.Name)
}

func (x *nodeIndex) forget(node string) {
	for _, nic := range x.nics[node] {
		delete(x.nodes[nic], node)
		if len(x.nodes[nic]) == 0 {
			delete(x.nodes, nic)
		}
	}
	delete(x.nics, node)
}
