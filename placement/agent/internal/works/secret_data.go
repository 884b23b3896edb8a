// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// secretDataCache has the data of placed Secrets. The hub stores them in a Secret beside their Work, and
// the agent copies them to a Secret of its own in the cluster, so that it can repair objects while its
// hub is unreachable. Records do not have them.
type secretDataCache struct {
	hub    *hubClient
	local  client.Client
	byWork sync.Map // secretData by Work
}

// secretData are the data of one Secret.
type secretData struct {
	version string
	data    map[string][]byte
	// copied is true when the copy in the cluster has the data.
	copied bool
}

// secretDataFrom returns the data of the hub's Secret, or of the copy.
func secretDataFrom(o *corev1.Secret) secretData {
	return secretData{version: o.Annotations[v1alpha1.DataVersionAnnotation], data: o.Data}
}

// inject sets the data of a Secret to those of the version that its manifest names.
func (s *secretDataCache) inject(ctx context.Context, name string, t desiredObject, want *v1alpha1.SecretData) error {
	if want == nil {
		return nil
	}
	found, err := s.lookup(ctx, name, want.Version)
	if err != nil {
		return err
	}
	if found.version != want.Version {
		return &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: data: the hub does not have the data of this revision", t)}
	}
	if len(found.data) > 0 {
		data := make(map[string]any, len(found.data))
		for key, value := range found.data {
			data[key] = base64.StdEncoding.EncodeToString(value)
		}
		t.object.Object["data"] = data
	}
	return nil
}

// lookup returns the data of a version from memory, the hub or the copy. The result has another version
// when none of them has it.
func (s *secretDataCache) lookup(ctx context.Context, name, version string) (secretData, error) {
	if stored, ok := s.byWork.Load(name); ok {
		if known, ok := stored.(secretData); ok && known.version == version {
			return known, nil
		}
	}
	found, err := s.hub.fetchSecretData(ctx, name)
	if err != nil || found.version != version {
		copied := &corev1.Secret{}
		copyErr := s.local.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SecretCopyNamespace, Name: name}, copied)
		if client.IgnoreNotFound(copyErr) != nil {
			return secretData{}, errors.Join(err, fmt.Errorf("get the copy of a Secret's data %s/%s: %w", v1alpha1.SecretCopyNamespace, name, copyErr))
		}
		if data := secretDataFrom(copied); data.version == version {
			found, err = data, nil
			found.copied = true
		}
	}
	if err == nil && found.version == version {
		s.byWork.Store(name, found)
	}
	return found, err
}

// saveCopy updates the copy to the data with which a record's object was applied. The record owns the
// copy, so that the cluster's garbage collector deletes it with the record.
func (s *secretDataCache) saveCopy(ctx context.Context, rec *v1alpha1.AppliedWork) error {
	stored, _ := s.byWork.Load(rec.Name)
	known, ok := stored.(secretData)
	wanted := slices.ContainsFunc(rec.Spec.Work.Manifests, func(m v1alpha1.Manifest) bool {
		return m.Secret != nil && m.Secret.Version == known.version
	})
	if !ok || known.copied || !wanted {
		return nil
	}
	o := &corev1.Secret{}
	key := client.ObjectKey{Namespace: v1alpha1.SecretCopyNamespace, Name: rec.Name}
	err := s.local.Get(ctx, key, o)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get the copy of a Secret's data %s: %w", key, err)
	}
	missing := err != nil
	if missing || secretDataFrom(o).version != known.version || !metav1.IsControlledBy(o, rec) {
		o.Namespace, o.Name, o.Data = key.Namespace, key.Name, known.data
		o.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rec, v1alpha1.SchemeGroupVersion().WithKind("AppliedWork"))}
		o.OwnerReferences[0].BlockOwnerDeletion = nil // it would require a right over AppliedWorks' finalizers
		metav1.SetMetaDataLabel(&o.ObjectMeta, v1alpha1.ManagedLabel, "true")
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.DataVersionAnnotation, known.version)
		if missing {
			err = s.local.Create(ctx, o)
		} else {
			err = s.local.Update(ctx, o)
		}
		if err != nil {
			return fmt.Errorf("write the copy of a Secret's data %s: %w", key, err)
		}
	}
	known.copied = true
	s.byWork.Store(rec.Name, known)
	return nil
}

// forget drops the data of a Work from memory.
func (s *secretDataCache) forget(work string) { s.byWork.Delete(work) }
