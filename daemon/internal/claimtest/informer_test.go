// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// runInformer passes changes of the networks to all daemons, as their informers do. It lists the networks
// again after the watch has ended.
func (f *fleet) runInformer(ctx context.Context) {
	for ctx.Err() == nil {
		f.relist(ctx)
		if w, err := f.env.Client.Watch(ctx, &v1.ClusterNetworkList{}); err == nil {
			f.consumeEvents(w)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// relist passes all networks to the daemons.
func (f *fleet) relist(ctx context.Context) {
	list := &v1.ClusterNetworkList{}
	if err := f.env.Client.List(ctx, list); err != nil {
		return // the watch fails as well, and runInformer tries again
	}
	for i := range list.Items {
		f.notifyDaemons(&list.Items[i])
	}
}

// consumeEvents passes the networks of a watch to the daemons.
func (f *fleet) consumeEvents(w watch.Interface) {
	defer w.Stop()
	for event := range w.ResultChan() {
		if o, ok := event.Object.(*v1.ClusterNetwork); ok && event.Type != watch.Deleted {
			f.notifyDaemons(o)
		}
	}
}

// notifyDaemons passes a network to the daemons.
func (f *fleet) notifyDaemons(o *v1.ClusterNetwork) {
	for _, key := range f.keys {
		if key.UID != string(o.UID) {
			continue
		}
		for _, h := range f.hosts {
			d := h.daemon.Load()
			d.ObserveVersion(key, o.ResourceVersion)
			if o.Status.IPAM != nil && o.Status.IPAM.Recovering != nil {
				d.ReportToRecovery(key)
			}
		}
	}
}
