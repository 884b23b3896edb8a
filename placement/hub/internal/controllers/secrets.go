// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// isSecret says that an object's data travel in a Secret of their own beside its Work: others
// may read Works, and encryption at rest is for Secrets.
func (k Key) isSecret() bool { return k.Group == "" && k.Kind == "Secret" }

// takeData takes the data out of a Secret.
func takeData(o *unstructured.Unstructured) (map[string][]byte, error) {
	if o.Object["type"] == string(corev1.SecretTypeServiceAccountToken) {
		return nil, &policy.Error{
			Reason: v1alpha1.ReasonNotPlaceable, Field: "type", Message: "a ServiceAccount's token is good for the hub alone and stays there",
		}
	}
	encoded, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("field data of Secret %s/%s must be a map of strings", o.GetNamespace(), o.GetName())
	}
	delete(o.Object, "data")
	data, size := make(map[string][]byte, len(encoded)), 0
	for key, text := range encoded {
		if data[key], err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("field data of Secret %s/%s must be base64, and %s is not", o.GetNamespace(), o.GetName(), key)
		}
		size += len(key) + len(text)
	}
	if size > v1alpha1.MaxManifestBytes {
		return nil, fmt.Errorf("%w: Secret %s/%s has data of %d bytes, and at most %d fit: take data out of it",
			render.ErrTooLarge, o.GetNamespace(), o.GetName(), size, v1alpha1.MaxManifestBytes)
	}
	return data, nil
}

// sendData brings the Secret beside a target's Work to these data, and returns which version
// of them the Work is to name. It goes before the Work, so that the agent finds it.
func (p *pass) sendData(ctx context.Context, cluster string, data map[string][]byte) (*v1alpha1.SecretData, error) {
	key, stored := p.key.work(cluster), &corev1.Secret{}
	err := p.direct.Get(ctx, key, stored)
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
	metav1.SetMetaDataLabel(&stored.ObjectMeta, v1alpha1.SourceUIDLabel, string(p.object.GetUID()))
	if missing {
		stored.Namespace, stored.Name = key.Namespace, key.Name
		err = p.direct.Create(ctx, stored)
	} else {
		err = p.direct.Update(ctx, stored)
	}
	switch {
	case missing && apierrors.IsNotFound(err):
		return nil, fmt.Errorf("create Secret %s: %w", key, errNoNamespace)
	case err != nil:
		return nil, fmt.Errorf("write Secret %s: %w", key, err)
	}
	return &v1alpha1.SecretData{Version: version}, nil
}

// dropData deletes the Secret beside a Work that is done with.
func (p *pass) dropData(ctx context.Context, w *v1alpha1.Work) error {
	if !p.key.isSecret() {
		return nil
	}
	err := p.direct.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// dropOrphans deletes data that were sent for Works that were never made: the hub ended in
// between, and the object was placed elsewhere before the next attempt.
func (p *pass) dropOrphans(ctx context.Context) error {
	if !p.key.isSecret() {
		return nil
	}
	var list corev1.SecretList
	if err := p.direct.List(ctx, &list, client.MatchingLabels{v1alpha1.SourceUIDLabel: string(p.object.GetUID())}); err != nil {
		return fmt.Errorf("list Secrets sent for %s: %w", p.key, err)
	}
	for i := range list.Items {
		s := &list.Items[i]
		if _, ok := clusterOf(s.Namespace); !ok || s.Name != p.key.record() {
			continue
		}
		if err := client.IgnoreNotFound(p.direct.Delete(ctx, s, client.Preconditions{UID: &s.UID})); err != nil {
			return fmt.Errorf("delete Secret %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return nil
}
