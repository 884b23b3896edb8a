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

// secretDataCache has the data of placed Secrets. They come from the hub, where they are in a Secret
// beside their Work, and are copied to a Secret of the agent's in the cluster, so that it can
// repair while its hub is away. No record has them.
type secretDataCache struct {
	hub    *hubClient
	local  client.Client
	byWork sync.Map // secretData by Work
}

// secretData are the data of one Secret.
type secretData struct {
	version string
	data    map[string][]byte
	// copied tells that the cluster's copy has them.
	copied bool
}

// secretDataFrom reads the data that a Secret of the hub's, or a copy, has.
func secretDataFrom(o *corev1.Secret) secretData {
	return secretData{version: o.Annotations[v1alpha1.DataVersionAnnotation], data: o.Data}
}

// inject puts the data of a Secret, in the version that a manifest wants, into its target.
func (s *secretDataCache) inject(ctx context.Context, name string, t desiredObject, want *v1alpha1.SecretData) error {
	if want == nil {
		return nil
	}
	found, err := s.lookup(ctx, name, want.Version)
	if err != nil {
		return err
	}
	if found.version != want.Version {
		return &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: its data of this revision are not to be had from the hub yet, or no more", t)}
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

// lookup looks for data of a version: in memory, at the hub, in the copy. What it returns is of
// another version when none of these has them.
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
		if of := secretDataFrom(copied); of.version == version {
			found, err = of, nil
			found.copied = true
		}
	}
	if err == nil && found.version == version {
		s.byWork.Store(name, found)
	}
	return found, err
}

// saveCopy brings the copy to the data that a record's object was applied with. It goes with the
// record: the cluster's garbage collector deletes it.
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
		o.OwnerReferences[0].BlockOwnerDeletion = nil // which would take a right over AppliedWorks' finalizers
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
