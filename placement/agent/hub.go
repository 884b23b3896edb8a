// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// reportEvery is the least time between two reports of one Work.
const reportEvery = time.Second

// hub is the hub's API server, as one cluster's agent sees it.
type hub struct {
	client    client.Client
	cache     cache.Cache
	namespace string
	synced    func() bool
	now       func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // report by Work
}

// get implements works.
func (h *hub) get(name string) (*v1alpha1.Work, bool) {
	if !h.synced() {
		return nil, false
	}
	work := &v1alpha1.Work{}
	err := h.cache.Get(context.Background(), client.ObjectKey{Namespace: h.namespace, Name: name}, work) // from memory
	if err != nil {
		return nil, apierrors.IsNotFound(err)
	}
	return work, true
}

// report implements reporter.
func (h *hub) report(ctx context.Context, work *v1alpha1.Work, status v1alpha1.WorkStatus) (time.Duration, error) {
	keepTimes(&status, work.Status)
	if sameStatus(work.Status, status) {
		return 0, nil
	}
	if wait := h.claim(work.Name); wait > 0 {
		return wait, nil
	}
	// The agent is the status' only writer: it replaces it, whatever the hub does to the
	// spec meanwhile.
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": work.UID},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return 0, fmt.Errorf("encode status of Work %s: %w", work.Name, err)
	}
	target := &v1alpha1.Work{}
	target.Namespace, target.Name = work.Namespace, work.Name
	err = h.client.Status().Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(v1alpha1.AgentManager))
	if apierrors.IsNotFound(err) {
		return 0, nil // gone meanwhile: its event is on the way
	}
	if err != nil {
		h.unclaim(work.Name)
		return 0, fmt.Errorf("report on Work %s: %w", work.Name, err)
	}
	return 0, nil
}

// claim tells how long a report must wait still; at 0 it may be sent now.
func (h *hub) claim(name string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if wait := reportEvery - now.Sub(h.last[name]); wait > 0 {
		return wait
	}
	h.last[name] = now
	return 0
}

func (h *hub) unclaim(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.last, name)
}

// follow calls changed for every Work that comes, changes or goes.
func (h *hub) follow(ctx context.Context, changed func(name string)) error {
	informer, err := h.cache.GetInformer(ctx, &v1alpha1.Work{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	note := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if work, ok := o.(*v1alpha1.Work); ok {
			changed(work.Name)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, o any) { note(o) }, DeleteFunc: func(o any) {
			h.dropped(o)
			note(o)
		},
	})
	if err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	h.synced = registration.HasSynced
	return nil
}

// dropped forgets when the last report of a Work was.
func (h *hub) dropped(o any) {
	if work, ok := o.(*v1alpha1.Work); ok {
		h.unclaim(work.Name)
	}
}
