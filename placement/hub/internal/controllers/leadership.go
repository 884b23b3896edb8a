// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/term"
)

// leadership prepares this process to lead: it begins a term, and reads once what all decisions
// depend on.
type leadership struct {
	cached     client.Reader
	direct     client.Client
	now        func() time.Time
	signer     *term.Signer
	capacity   *limits.Capacity
	heartbeats *clusters.Heartbeats
	reports    *reports.Tracker
	// awaitPreflight keeps a hub that has placed nothing yet from writing where it must not run.
	awaitPreflight func(context.Context) error

	mu    sync.Mutex
	ready bool
}

// ensure prepares to lead, unless that is done. Controllers call it before each decision.
func (l *leadership) ensure(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready {
		return nil
	}
	if err := l.beginTerm(ctx); err != nil {
		return err
	}
	l.reports.Reset()
	var list v1alpha1.AssignmentList
	if err := l.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Assignments: %w", err)
	}
	if len(list.Items) == 0 {
		if err := l.awaitPreflight(ctx); err != nil {
			return err
		}
	}
	for i := range list.Items {
		a := &list.Items[i]
		l.capacity.Restore(kinds.KeyOf(a.Spec.Object), limits.ReservationOf(a))
	}
	if err := l.heartbeats.ObserveAll(ctx); err != nil {
		return err
	}
	l.ready = true
	return nil
}

func (l *leadership) beginTerm(ctx context.Context) error {
	system := kinds.NamespaceMetadata()
	if err := l.direct.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("read the hub's UID: %w", err)
	}
	var works v1alpha1.WorkList
	if err := l.cached.List(ctx, &works, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Works: %w", err)
	}
	epoch := ""
	for i := range works.Items {
		if epoch = works.Items[i].Spec.Epoch; epoch != "" {
			break
		}
	}
	next, err := term.Next(ctx, l.direct, l.signer.Current(), epoch, l.now())
	if err != nil {
		return err
	}
	next.HubUID = system.UID
	l.signer.Begin(next)
	return nil
}

// restored makes the next ensure begin another term and read everything again. A Work is older than
// this leader has left it, or is missing: the hub was restored from a backup while it ran.
func (l *leadership) restored(ctx context.Context, work client.ObjectKey) error {
	log.FromContext(ctx).Info("Found a Work older than written: the hub's state was restored, or the Work was deleted", "work", work)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = false
	return scope.ErrStale
}
