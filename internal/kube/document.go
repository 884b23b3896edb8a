// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// NetworkDocument is a network object as the API server sent it. Unlike the Go types it has all fields, also those
// that only a newer version knows. An update of the status replaces all of it, so a program that wrote Go types would
// delete these fields, which are there while an upgrade replaces one program after the other.
//
// It implements runtime.Unstructured, with which a client gives it the JSON itself.
type NetworkDocument struct {
	// Object is what the Go types know of it. It must not be modified.
	client.Object
	// stored is the object's JSON.
	stored []byte
	// hasUnknown means that the Go types do not have all its fields.
	hasUnknown bool
}

// GetNetwork reads a network.
func GetNetwork(ctx context.Context, c client.Reader, ref network.Ref) (*NetworkDocument, error) {
	d, err := newNetworkDocument(ref.Kind)
	if err != nil {
		return nil, err
	}
	if err := c.Get(ctx, ObjectKey(ref), d); err != nil {
		return nil, err
	}
	return d, nil
}

// newNetworkDocument returns an empty document of a kind.
func newNetworkDocument(kind string) (*NetworkDocument, error) {
	obj, err := NewNetwork(kind)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(kind))
	return &NetworkDocument{Object: obj}, nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *NetworkDocument) UnmarshalJSON(raw []byte) error {
	kind := d.GetObjectKind().GroupVersionKind().Kind
	next, err := newNetworkDocument(kind)
	if err != nil {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if strict.Decode(next.Object) != nil {
		next, _ = newNetworkDocument(kind)
		next.hasUnknown = true
		if err := json.Unmarshal(raw, next.Object); err != nil {
			return fmt.Errorf("decode %s: %w", kind, err)
		}
	}
	next.stored = bytes.Clone(raw)
	*d = *next
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d *NetworkDocument) MarshalJSON() ([]byte, error) { return d.stored, nil }

// UpdateStatus writes the status, with the UID and resourceVersion that were read, and returns the answer. Fields that
// the Go types do not know stay as they were read, except those of a part that the new status does not have, and
// those of a list's entry that changes.
func (d *NetworkDocument) UpdateStatus(ctx context.Context, c client.StatusClient, status *v1.NetworkStatus) (*NetworkDocument, error) {
	next, err := newNetworkDocument(d.GetObjectKind().GroupVersionKind().Kind)
	if err != nil {
		return nil, err
	}
	// The metadata is repeated: a field that is missing in an update loses its server-side apply owner. The API server
	// keeps managedFields and the spec.
	next.SetNamespace(d.GetNamespace())
	next.SetName(d.GetName())
	next.SetUID(d.GetUID())
	next.SetResourceVersion(d.GetResourceVersion())
	next.SetFinalizers(d.GetFinalizers())
	next.SetLabels(d.GetLabels())
	next.SetAnnotations(d.GetAnnotations())
	next.SetOwnerReferences(d.GetOwnerReferences())
	*NetworkStatusOf(next.Object) = *status
	if next.stored, err = json.Marshal(next.Object); err != nil {
		return nil, fmt.Errorf("encode the new status: %w", err)
	}
	if d.hasUnknown {
		if next.stored, err = d.addUnknown(next); err != nil {
			return nil, err
		}
	}
	if err := c.Status().Update(ctx, next); err != nil {
		return nil, err
	}
	return next, nil
}

// addUnknown returns the JSON of the next version with those fields of the status that the Go types do not know.
func (d *NetworkDocument) addUnknown(next *NetworkDocument) ([]byte, error) {
	known, err := json.Marshal(d.Object)
	if err != nil {
		return nil, fmt.Errorf("encode the status that was read: %w", err)
	}
	var stored, before, after map[string]any
	for _, one := range []struct {
		raw  []byte
		into *map[string]any
	}{{d.stored, &stored}, {known, &before}, {next.stored, &after}} {
		if err := utiljson.Unmarshal(one.raw, one.into); err != nil {
			return nil, fmt.Errorf("decode the status: %w", err)
		}
	}
	after["status"] = replaceKnown(stored["status"], before["status"], after["status"])
	raw, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode the new status: %w", err)
	}
	return raw, nil
}

// replaceKnown returns what is stored with the known part replaced: before is how the known part was read, after is
// how it has to be. It modifies nothing.
func replaceKnown(stored, before, after any) any {
	if stored != nil && reflect.DeepEqual(before, after) {
		return stored
	}
	switch stored := stored.(type) {
	case map[string]any:
		old, wasMap := before.(map[string]any)
		known, isMap := after.(map[string]any)
		if wasMap && isMap {
			return replaceKnownFields(stored, old, known)
		}
	case []any:
		old, wasList := before.([]any)
		known, isList := after.([]any)
		if wasList && isList && len(stored) == len(old) {
			return replaceKnownEntries(stored, old, known)
		}
	}
	return after
}

// replaceKnownFields is replaceKnown of a map.
func replaceKnownFields(stored, before, after map[string]any) map[string]any {
	out := maps.Clone(stored)
	for key := range before {
		if _, ok := after[key]; !ok {
			delete(out, key)
		}
	}
	for key, value := range after {
		out[key] = replaceKnown(stored[key], before[key], value)
	}
	return out
}

// replaceKnownEntries is replaceKnown of a list. An entry that the list had before, at any place, is the stored one.
func replaceKnownEntries(stored, before, after []any) []any {
	out := slices.Clone(after)
	for i, entry := range after {
		same := func(b any) bool { return reflect.DeepEqual(b, entry) }
		if j := slices.IndexFunc(before, same); j >= 0 {
			out[i] = stored[j]
		}
	}
	return out
}

// The methods below complete runtime.Unstructured.

// DeepCopyObject implements runtime.Object.
func (d *NetworkDocument) DeepCopyObject() runtime.Object {
	obj, _ := d.Object.DeepCopyObject().(client.Object)
	return &NetworkDocument{Object: obj, stored: bytes.Clone(d.stored), hasUnknown: d.hasUnknown}
}

// UnstructuredContent implements runtime.Unstructured.
func (d *NetworkDocument) UnstructuredContent() map[string]any {
	content := map[string]any{}
	_ = utiljson.Unmarshal(d.stored, &content)
	return content
}

// SetUnstructuredContent implements runtime.Unstructured.
func (d *NetworkDocument) SetUnstructuredContent(content map[string]any) {
	if raw, err := json.Marshal(content); err == nil {
		_ = d.UnmarshalJSON(raw)
	}
}

// NewEmptyInstance implements runtime.Unstructured.
func (d *NetworkDocument) NewEmptyInstance() runtime.Unstructured {
	empty, _ := newNetworkDocument(d.GetObjectKind().GroupVersionKind().Kind)
	return empty
}

// IsList implements runtime.Unstructured.
func (d *NetworkDocument) IsList() bool { return false }

// EachListItem implements runtime.Unstructured.
func (d *NetworkDocument) EachListItem(func(runtime.Object) error) error { return nil }

// EachListItemWithAlloc implements runtime.Unstructured.
func (d *NetworkDocument) EachListItemWithAlloc(func(runtime.Object) error) error { return nil }
