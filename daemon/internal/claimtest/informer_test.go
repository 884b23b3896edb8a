// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// runInformer tells all daemons of changes of the networks, as their informers do, and looks
// anew whenever the API server was away.
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

func (f *fleet) relist(ctx context.Context) {
	list := &v1.ClusterNetworkList{}
	if err := f.env.Client.List(ctx, list); err != nil {
		return // the watch fails, too, and it is tried again
	}
	for i := range list.Items {
		f.notifyDaemons(&list.Items[i])
	}
}

func (f *fleet) consumeEvents(w watch.Interface) {
	defer w.Stop()
	for event := range w.ResultChan() {
		if o, ok := event.Object.(*v1.ClusterNetwork); ok && event.Type != watch.Deleted {
			f.notifyDaemons(o)
		}
	}
}

func (f *fleet) notifyDaemons(o *v1.ClusterNetwork) {
	for _, key := range f.keys {
		if key.UID != string(o.UID) {
			continue
		}
		for _, h := range f.hosts {
			d := h.daemon.Load()
			d.Look(key, o.ResourceVersion)
			if o.Status.IPAM != nil && o.Status.IPAM.Recovering != nil {
				d.Reassert(key)
			}
		}
	}
}
