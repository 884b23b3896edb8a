// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"bytes"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// renderManifest renders the object for one cluster, with this many replicas; nil: as it is. It returns the data of a Secret apart, not nil
// for a Secret. Its errors are mistakes of users.
func renderManifest(s *scope.Scope, replicas *int32, cluster *v1alpha1.Cluster) (raw []byte, data map[string][]byte, err error) {
	o := s.Object.DeepCopy()
	render.Prune(o)
	if s.Key.IsSecret() { // before the rules, so that neither they nor their errors see the data
		if data, err = takeSecretData(o); err != nil {
			return nil, nil, err
		}
	}
	if err := s.Rules.Apply(o, cluster); err != nil {
		return nil, nil, err
	}
	if s.Key.IsSecret() && (o.Object["data"] != nil || o.Object["stringData"] != nil) {
		return nil, nil, fmt.Errorf("%s: Customizations must not set data or stringData of a Secret: change the Secret itself", s.Key)
	}
	if replicas != nil { // after the rules: the migration decides the replicas
		if err := render.SetReplicas(o, *replicas); err != nil {
			return nil, nil, fmt.Errorf("set replicas: %w", err)
		}
	}
	if b, ok := s.ReplicaBounds[cluster.Name]; ok {
		if err := render.BoundReplicas(o, b.Min, b.Exact); err != nil {
			return nil, nil, fmt.Errorf("bound replicas: %w", err)
		}
	}
	raw, err = render.MarshalManifest(o)
	return raw, data, err
}

// takeSecretData removes the data from a Secret, and returns them decoded.
func takeSecretData(o *unstructured.Unstructured) (map[string][]byte, error) {
	if o.Object["type"] == string(corev1.SecretTypeServiceAccountToken) {
		return nil, &policy.Error{
			Reason: v1alpha1.ReasonNotPlaceable, Field: "type", Message: "must not be " + string(corev1.SecretTypeServiceAccountToken) + ": the token is valid at the hub only, and is not placed",
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

// storedManifest returns a Work's manifest with this many replicas, or as it is for nil.
func storedManifest(w *v1alpha1.Work, replicas *int32) ([]byte, error) {
	o, err := scope.ManifestOf(w)
	if err != nil {
		return nil, err
	}
	if replicas != nil {
		if err := render.SetReplicas(o, *replicas); err != nil {
			return nil, fmt.Errorf("set replicas: %w", err)
		}
	}
	return render.MarshalManifest(o)
}

// EqualWorkSpecs reports whether two specs order the same. It ignores the bytes that encode the
// manifest, and the signature: only a change is signed.
func EqualWorkSpecs(a, b *v1alpha1.WorkSpec) bool {
	x, y := *a, *b
	if len(x.Manifests) != 1 || len(y.Manifests) != 1 || x.Manifests[0].Resource != y.Manifests[0].Resource ||
		!equality.Semantic.DeepEqual(x.Manifests[0].Secret, y.Manifests[0].Secret) || !equalJSON(x.Manifests[0].Object.Raw, y.Manifests[0].Object.Raw) {
		return false
	}
	x.Manifests, y.Manifests = nil, nil
	x.Epoch, x.Term, x.History = y.Epoch, y.Term, y.History
	return equality.Semantic.DeepEqual(x, y)
}

func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y unstructured.Unstructured
	return x.UnmarshalJSON(a) == nil && y.UnmarshalJSON(b) == nil && equality.Semantic.DeepEqual(x.Object, y.Object)
}
