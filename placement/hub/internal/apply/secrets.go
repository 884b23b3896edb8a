// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// Secrets writes the Secrets beside the Works of a Secret: they carry its data.
type Secrets struct {
	// Direct is the API server. The hub caches no Secrets.
	Direct client.Client
}

// Write stores data beside the Work for a cluster, and returns the version of the data that the
// Work must name. It precedes the Work, so that the agent finds the data.
func (w *Secrets) Write(ctx context.Context, s *scope.Scope, cluster string, data map[string][]byte) (*v1alpha1.SecretData, error) {
	key, stored := s.Key.Work(cluster), &corev1.Secret{}
	err := w.Direct.Get(ctx, key, stored)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	missing := err != nil
	if version := stored.Annotations[v1alpha1.DataVersionAnnotation]; version != "" && maps.EqualFunc(stored.Data, data, bytes.Equal) {
		return &v1alpha1.SecretData{Version: version}, nil
	}
	version := string(uuid.NewUUID())
	stored.Data = data
	metav1.SetMetaDataAnnotation(&stored.ObjectMeta, v1alpha1.DataVersionAnnotation, version)
	metav1.SetMetaDataLabel(&stored.ObjectMeta, v1alpha1.SourceUIDLabel, string(s.Object.GetUID()))
	if missing {
		stored.Namespace, stored.Name = key.Namespace, key.Name
		err = w.Direct.Create(ctx, stored)
	} else {
		err = w.Direct.Update(ctx, stored)
	}
	switch {
	case missing && apierrors.IsNotFound(err):
		return nil, fmt.Errorf("create Secret %s: %w", key, ErrNamespaceMissing)
	case err != nil:
		return nil, fmt.Errorf("write Secret %s: %w", key, err)
	}
	return &v1alpha1.SecretData{Version: version}, nil
}

// Delete deletes the Secret beside a Work, if the Work is of a Secret.
func (w *Secrets) Delete(ctx context.Context, s *scope.Scope, work *v1alpha1.Work) error {
	if !s.Key.IsSecret() {
		return nil
	}
	err := w.Direct.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: work.Namespace, Name: work.Name}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s/%s: %w", work.Namespace, work.Name, err)
	}
	return nil
}

// DeleteOrphans deletes data that were stored for Works that were never made: the hub ended in
// between, and the Secret was placed elsewhere before the next attempt.
func (w *Secrets) DeleteOrphans(ctx context.Context, s *scope.Scope) error {
	if !s.Key.IsSecret() {
		return nil
	}
	var list corev1.SecretList
	if err := w.Direct.List(ctx, &list, client.MatchingLabels{v1alpha1.SourceUIDLabel: string(s.Object.GetUID())}); err != nil {
		return fmt.Errorf("list the Secrets of the Works of %s: %w", s.Key, err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if _, ok := kinds.ClusterOfNamespace(o.Namespace); !ok || o.Name != s.Key.RecordName() {
			continue
		}
		if err := client.IgnoreNotFound(w.Direct.Delete(ctx, o, client.Preconditions{UID: &o.UID})); err != nil {
			return fmt.Errorf("delete Secret %s/%s: %w", o.Namespace, o.Name, err)
		}
	}
	return nil
}
