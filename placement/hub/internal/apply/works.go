// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/desiredstate"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/term"
)

const (
	// concurrentWrites is how many Works of one object are written at a time: as many as it has in all
	// but the largest fleets, so that the first reports do not delay the last order.
	concurrentWrites = 32
	// lostWorkRevisions is added to the last known revision of a lost Work: its agent may have seen
	// later ones.
	lostWorkRevisions = 1000
)

// ErrNamespaceMissing is returned when a Cluster's namespace does not exist.
var ErrNamespaceMissing = errors.New("the cluster's namespace does not exist")

// Works writes the Works of objects.
type Works struct {
	// Direct is the API server.
	Direct client.Client
	// Secrets beside the Works.
	Secrets *Secrets
	// Signer signs each change.
	Signer *term.Signer
	// Expectations verify the Assignment that the Works are made from.
	Expectations *Expectations
	// Restored handles a Work that is older than this leader has left it, or missing: the hub was
	// restored from a backup while it ran. It returns an error.
	Restored func(ctx context.Context, work client.ObjectKey) error
}

// Apply carries out changes, by the stored Assignment a. It reports whether it has written any Work:
// agents then report soon. After an error of one change the others are carried out nevertheless.
func (w *Works) Apply(ctx context.Context, s *scope.Scope, a *v1alpha1.Assignment, changes desiredstate.WorkChanges) (written bool, err error) {
	var anyWritten atomic.Bool
	for _, c := range changes.Finished {
		if err := w.apply(ctx, s, a, c, &anyWritten); err != nil {
			return anyWritten.Load(), err
		}
	}
	var g errgroup.Group
	g.SetLimit(concurrentWrites)
	for _, c := range changes.Targets {
		g.Go(func() error { return w.apply(ctx, s, a, c, &anyWritten) })
	}
	err = g.Wait()
	return anyWritten.Load(), err
}

func (w *Works) apply(ctx context.Context, s *scope.Scope, a *v1alpha1.Assignment, c desiredstate.WorkChange, written *atomic.Bool) error {
	switch {
	case c.Err != nil:
		return c.Err
	case c.Action == desiredstate.DropResumeAnnotation:
		return w.dropResumeAnnotation(ctx, c.Stored)
	case c.Action == desiredstate.DeleteWork:
		return w.delete(ctx, s, c.Stored)
	case c.Action != desiredstate.WriteWork:
		return nil
	}
	spec := c.Spec
	spec.HubUID = w.Signer.Current().HubUID
	if c.SecretData != nil {
		version, err := w.Secrets.Write(ctx, s, c.Cluster, c.SecretData)
		if err != nil {
			return err
		}
		spec.Manifests[0].Secret = version
	}
	if c.Stored != nil && desiredstate.EqualWorkSpecs(&c.Stored.Spec, &spec) {
		return nil
	}
	if err := w.Expectations.Verify(ctx, s.Key, a); err != nil {
		return err
	}
	if c.Stored != nil {
		return w.change(ctx, c.Stored, spec, written)
	}
	return w.create(ctx, s, c.Cluster, spec, written)
}

// dropResumeAnnotation removes the answer from a Work whose agent has acted on it.
func (w *Works) dropResumeAnnotation(ctx context.Context, stored *v1alpha1.Work) error {
	next := stored.DeepCopy()
	delete(next.Annotations, v1alpha1.ResumeAnnotation)
	err := w.Direct.Patch(ctx, next, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the annotation %s from Work %s/%s: %w", v1alpha1.ResumeAnnotation, stored.Namespace, stored.Name, err)
	}
	return nil
}

func (w *Works) delete(ctx context.Context, s *scope.Scope, stored *v1alpha1.Work) error {
	if err := w.Secrets.Delete(ctx, s, stored); err != nil {
		return err
	}
	err := w.Direct.Delete(ctx, stored, client.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Work %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	w.Signer.RecordDelete(client.ObjectKeyFromObject(stored))
	return nil
}

// change replaces the spec of a Work, if it is still the one of the Scope. The agent may change the
// status meanwhile.
func (w *Works) change(ctx context.Context, stored *v1alpha1.Work, spec v1alpha1.WorkSpec, written *atomic.Bool) error {
	key := client.ObjectKeyFromObject(stored)
	switch {
	case stored.Spec.Revision < w.Signer.WrittenRevision(key):
		return w.explainOlder(ctx, key)
	case stored.Spec.Term > w.Signer.Current().Number: // another leader has taken over
		return fmt.Errorf("change Work %s: its term %d is later than this leader's: %w", key, stored.Spec.Term, scope.ErrStale)
	}
	spec.Revision = stored.Spec.Revision + 1
	w.Signer.Current().Sign(&spec, v1alpha1.WorkPosition{Term: stored.Spec.Term, Revision: stored.Spec.Revision}, stored.Status.Term)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": stored.UID},
		{"op": "test", "path": "/spec/revision", "value": stored.Spec.Revision},
		{"op": "replace", "path": "/spec", "value": spec},
	})
	if err != nil {
		return fmt.Errorf("encode Work %s: %w", key, err)
	}
	written.Store(true)
	next := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: stored.Namespace, Name: stored.Name}}
	err = w.Direct.Patch(ctx, next, client.RawPatch(types.JSONPatchType, patch))
	if isFailedTest(err) {
		err = scope.ErrStale
	}
	if err != nil {
		return fmt.Errorf("change Work %s: %w", key, err)
	}
	w.Signer.RecordWrite(key, next.Spec.Revision)
	return nil
}

// isFailedTest reports whether a test of a JSON patch has failed. An invalid spec has causes.
func isFailedTest(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsInvalid(err) && (status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0)
}

// explainOlder tells why the cache has an older revision of a Work than this leader has written: the
// cache is behind, or the hub was restored.
func (w *Works) explainOlder(ctx context.Context, key client.ObjectKey) error {
	stored := &v1alpha1.Work{}
	if err := w.Direct.Get(ctx, key, stored); err != nil {
		return fmt.Errorf("read Work %s: %w", key, err)
	}
	if stored.Spec.Revision < w.Signer.WrittenRevision(key) {
		return w.Restored(ctx, key)
	}
	return scope.ErrStale
}

// create creates the Work for a cluster, at a later revision than it had if it was lost.
func (w *Works) create(ctx context.Context, s *scope.Scope, cluster string, spec v1alpha1.WorkSpec, written *atomic.Bool) error {
	key := s.Key.Work(cluster)
	if w.Signer.WrittenRevision(key) > 0 {
		return w.explainMissing(ctx, key)
	}
	before, present := s.LastPosition(cluster), w.Signer.Current()
	if spec.Revision = 1; before.Revision > 0 { // it was lost
		spec.Revision = before.Revision + lostWorkRevisions
		before.Revision = spec.Revision
	} else {
		before.Term = present.Number
	}
	present.Sign(&spec, before, 0)
	written.Store(true)
	err := w.Direct.Create(ctx, &v1alpha1.Work{Spec: spec, ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{v1alpha1.SourceUIDLabel: string(spec.Source.UID)},
	}})
	if apierrors.IsNotFound(err) {
		err = ErrNamespaceMissing
	}
	if err != nil {
		return fmt.Errorf("create Work %s: %w", key, err)
	}
	w.Signer.RecordWrite(key, spec.Revision)
	return nil
}

// explainMissing tells why the cache has no Work that this leader has written: the cache is behind, a
// user has deleted the Work, or the hub was restored.
func (w *Works) explainMissing(ctx context.Context, key client.ObjectKey) error {
	err := w.Direct.Get(ctx, key, &v1alpha1.Work{})
	if kinds.IsObjectNotFound(err) {
		return w.Restored(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("read Work %s: %w", key, err)
	}
	return scope.ErrStale
}
