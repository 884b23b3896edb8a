// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// nodeIndex counts the Nodes with each label of a NIC, by which podMutator decides whether Pods need node affinity.
// It watches the metadata of Nodes. It is safe for concurrent use.
type nodeIndex struct {
	cache cache.Cache

	mu sync.RWMutex
	// synced is true when all Nodes have been read once.
	synced bool
	// nics are the NICs in each Node's labels, nodes the numbers of Nodes by NIC.
	nics  map[string][]string
	nodes map[string]int
}

func newNodeIndex(c cache.Cache) *nodeIndex {
	return &nodeIndex{cache: c, nics: map[string][]string{}, nodes: map[string]int{}}
}

// isIndifferent reports whether no Node is a better choice than another for a Pod on the NIC: all of them have its
// label, or none. If none has it, the NIC has just been installed, or its name is no label, or is wrong, or the
// controller may not label Nodes. The Pod would wait for a label that perhaps never comes, without a
// message that says why.
func (x *nodeIndex) isIndifferent(nic string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	count := x.nodes[nic]
	return !x.synced || count == 0 || count == len(x.nics)
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
	nics := []string{}
	for label := range node.Labels {
		if nic, isNIC := strings.CutPrefix(label, v1.NICLabelPrefix); isNIC {
			nics = append(nics, nic)
			x.nodes[nic]++
		}
	}
	x.nics[node.Name] = nics
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
		x.nodes[nic]--
		if x.nodes[nic] == 0 {
			delete(x.nodes, nic)
		}
	}
	delete(x.nics, node)
}

// slimNode keeps the name of a Node and its labels of NICs.
func slimNode(obj any) (any, error) {
	node, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	slim := &metav1.PartialObjectMetadata{TypeMeta: node.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
	}}
	for label, value := range node.Labels {
		if strings.HasPrefix(label, v1.NICLabelPrefix) {
			metav1.SetMetaDataLabel(&slim.ObjectMeta, label, value)
		}
	}
	return slim, nil
}
