// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/podindex"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
	"github.com/patchbay-cni/patchbay/placement/internal/debugpath"
)

// debugAccess decides what users of the hub may reach in this cluster: only what this hub has placed. Objects of
// another hub, which the cluster had before or has as well, are not theirs.
type debugAccess struct {
	records    *records.Store
	pods       *podindex.Index
	namespaces client.Reader
	services   dynamic.NamespaceableResourceInterface
	readHubUID func(context.Context) (string, error)

	mu     sync.Mutex
	uid    types.UID // of the hub
	readAt time.Time
}

// check returns why users of the hub may not reach something; nil when they may.
func (d *debugAccess) check(ctx context.Context, p debugpath.Placed) error {
	hub, err := d.hubUID(ctx)
	if err != nil {
		return err
	}
	if err := d.checkNamespace(ctx, hub, p.Namespace); err != nil {
		return err
	}
	switch {
	case p.Pod != "":
		return d.checkPod(hub, p)
	case p.Service != "":
		return d.checkService(ctx, hub, p)
	}
	return nil
}

// hubUIDLifetime is how long the hub's UID is used before it is read again: the address may lead to another hub.
const hubUIDLifetime = time.Minute

func (d *debugAccess) hubUID(ctx context.Context) (types.UID, error) {
	d.mu.Lock()
	uid, readAt := d.uid, d.readAt
	d.mu.Unlock()
	if time.Since(readAt) < hubUIDLifetime {
		return uid, nil
	}
	text, err := d.readHubUID(ctx)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.uid, d.readAt = types.UID(text), time.Now()
	return d.uid, nil
}

// checkNamespace checks that the hub has placed an object in a namespace, and that the cluster's admin still opens it to
// the hub.
func (d *debugAccess) checkNamespace(ctx context.Context, hub types.UID, name string) error {
	if name == "" || !d.records.InNamespace(name, hub) {
		return fmt.Errorf("namespace %s must have an object that the hub has placed there", name)
	}
	ns := &corev1.Namespace{}
	if err := d.namespaces.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
		return fmt.Errorf("get namespace %s: %w", name, err)
	}
	if allowedAccess(ns, &v1alpha1.WorkSpec{HubUID: hub}) == "" {
		return fmt.Errorf("namespace %s must have the label %s=%s, with which the cluster's admin opens it to the hub", name, v1alpha1.AccessLabel, v1alpha1.AccessCreate)
	}
	return nil
}

// checkPod checks that a Pod, or one of its owners, is an object of the hub.
func (d *debugAccess) checkPod(hub types.UID, p debugpath.Placed) error {
	item, exists, err := d.pods.Pods.GetByKey(p.Namespace + "/" + p.Pod)
	pod, ok := item.(metav1.Object)
	if err != nil || !exists || !ok || !d.records.AnyPlaced(hub, d.pods.OwnerChain(pod)...) {
		return fmt.Errorf("pod %s/%s must exist, and it or its owner must be an object that the hub has placed: other Pods of the namespace "+
			"are reached in the cluster only", p.Namespace, p.Pod)
	}
	return nil
}

// checkService checks that a Service is an object of the hub.
func (d *debugAccess) checkService(ctx context.Context, hub types.UID, p debugpath.Placed) error {
	service, err := d.services.Namespace(p.Namespace).Get(ctx, p.Service, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get service %s/%s: %w", p.Namespace, p.Service, err)
	}
	if !d.records.AnyPlaced(hub, service.GetUID()) {
		return fmt.Errorf("service %s/%s must be an object that the hub has placed", p.Namespace, p.Service)
	}
	return nil
}
