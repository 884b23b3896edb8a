// SPDX-License-Identifier: Apache-2.0

// Package records stores what the agent has applied: one AppliedWork for each Work.
package records

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Store writes the AppliedWorks in the cluster, and caches them: this agent is their only writer, and
// reads them once. Callers must not change the records that it returns.
type Store struct {
	client client.Client

	mu           sync.Mutex
	byName       map[string]*v1alpha1.AppliedWork
	workByObject map[string]string // by ObjectKey, and by UID
	objectCount  map[place]int     // existing objects
}

// place is a namespace in which a hub has placed objects.
type place struct {
	namespace string
	hub       types.UID
}

// New returns a Store without any record: see Load.
func New(c client.Client) *Store {
	return &Store{client: c, byName: map[string]*v1alpha1.AppliedWork{}, workByObject: map[string]string{}, objectCount: map[place]int{}}
}

// ObjectKey identifies an object in the cluster, without the version of its kind.
func ObjectKey(group, resource, namespace, name string) string {
	return resource + "." + group + " " + namespace + "/" + name
}

// Load reads all records.
func (r *Store) Load(ctx context.Context) error {
	var list v1alpha1.AppliedWorkList
	if err := r.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list AppliedWorks: %w", err)
	}
	for i := range list.Items {
		r.store(&list.Items[i])
	}
	return nil
}

// Get returns a record; nil when there is none.
func (r *Store) Get(name string) *v1alpha1.AppliedWork {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[name]
}

// List returns all records, in any order.
func (r *Store) List() []*v1alpha1.AppliedWork {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.byName))
}

// Count returns the number of records.
func (r *Store) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byName)
}

// WorkForObject returns the name of the Work of an object in the cluster, by its UID or its ObjectKey.
func (r *Store) WorkForObject(key string, uid types.UID) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name, ok := r.workByObject[string(uid)]; ok {
		return name, true
	}
	name, ok := r.workByObject[key]
	return name, ok
}

// InNamespace tells whether there is an object in a namespace that a hub has placed.
func (r *Store) InNamespace(namespace string, hub types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objectCount[place{namespace, hub}] > 0
}

// AnyPlaced tells whether one of the UIDs is that of an object that a hub has placed.
func (r *Store) AnyPlaced(hub types.UID, uids ...types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(uids, func(uid types.UID) bool {
		// A record may have forgotten an object that it has released.
		rec := r.byName[r.workByObject[string(uid)]]
		return uid != "" && rec != nil && rec.Spec.Work.HubUID == hub &&
			slices.ContainsFunc(rec.Status.Objects, func(o v1alpha1.AppliedObject) bool { return o.UID == uid })
	})
}

// TooLargeError is why a Work is not recorded.
type TooLargeError struct {
	// Work is its name.
	Work string
	// Bytes of its spec as JSON.
	Bytes int
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Work %s: spec: must have at most %d bytes as JSON, and has %d: make the object smaller", e.Work, maxSpecBytes, e.Bytes)
}

// ReservedBytes is the part of MaxObjectBytes for the metadata that API servers add.
const ReservedBytes = 16 << 10

// maxSpecBytes is the largest spec of a Work in a record, so that the record with its status has at most
// MaxObjectBytes.
const maxSpecBytes = v1alpha1.MaxObjectBytes - 2*ReservedBytes

// SaveSpec stores the spec of a Work in its record, before the agent creates the objects. A mark is the value
// of ResumeAnnotation on a record that keeps its manifests because a user has decided so.
func (r *Store) SaveSpec(ctx context.Context, name string, spec v1alpha1.WorkSpec, mark string) (*v1alpha1.AppliedWork, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode Work %s: %w", name, err)
	}
	if len(raw) > maxSpecBytes {
		return nil, &TooLargeError{Work: name, Bytes: len(raw)}
	}
	old := r.Get(name)
	if old == nil {
		rec := &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
		spec.DeepCopyInto(&rec.Spec.Work)
		if err := r.client.Create(ctx, rec); err != nil {
			return nil, r.refreshAfterConflict(ctx, "create", rec, err)
		}
		return r.store(rec), nil
	}
	rec := old.DeepCopy()
	spec.DeepCopyInto(&rec.Spec.Work)
	if delete(rec.Annotations, v1alpha1.ResumeAnnotation); mark != "" {
		metav1.SetMetaDataAnnotation(&rec.ObjectMeta, v1alpha1.ResumeAnnotation, mark)
	}
	if err := r.client.Update(ctx, rec); err != nil {
		return nil, r.refreshAfterConflict(ctx, "update", rec, err)
	}
	rec.Status = old.Status // the answer to an update of the spec need not have the present status
	return r.store(rec), nil
}

// SaveStatus stores the status of a record.
func (r *Store) SaveStatus(ctx context.Context, rec *v1alpha1.AppliedWork) error {
	rec = rec.DeepCopy()
	if err := r.client.Status().Update(ctx, rec); err != nil {
		return r.refreshAfterConflict(ctx, "update status of", rec, err)
	}
	r.store(rec)
	return nil
}

// refreshAfterConflict wraps the error of a write. After a conflict, with another client or with an own write
// whose answer was lost, it reads the record again for the next attempt.
func (r *Store) refreshAfterConflict(ctx context.Context, verb string, rec *v1alpha1.AppliedWork, err error) error {
	err = fmt.Errorf("%s AppliedWork %s: %w", verb, rec.Name, err)
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
		return err
	}
	fresh := &v1alpha1.AppliedWork{}
	switch getErr := r.client.Get(ctx, client.ObjectKeyFromObject(rec), fresh); {
	case apierrors.IsNotFound(getErr):
		r.forget(rec.Name)
	case getErr == nil:
		r.store(fresh)
	}
	return err
}

// Delete deletes a record whose objects are gone or released.
func (r *Store) Delete(ctx context.Context, rec *v1alpha1.AppliedWork) error {
	err := r.client.Delete(ctx, &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: rec.Name}},
		client.Preconditions{UID: &rec.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete AppliedWork %s: %w", rec.Name, err)
	}
	r.forget(rec.Name)
	return nil
}

// store caches a record and indexes its objects.
func (r *Store) store(rec *v1alpha1.AppliedWork) *v1alpha1.AppliedWork {
	rec.ManagedFields = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countObjects(r.byName[rec.Name], -1)
	r.countObjects(rec, 1)
	r.byName[rec.Name] = rec
	for _, o := range rec.Status.Objects {
		r.workByObject[ObjectKey(o.Group, o.Resource, o.Namespace, o.Name)] = rec.Name
		if o.UID != "" {
			r.workByObject[string(o.UID)] = rec.Name
		}
	}
	return rec
}

func (r *Store) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countObjects(r.byName[name], -1)
	delete(r.byName, name)
	maps.DeleteFunc(r.workByObject, func(_, work string) bool { return work == name })
}

// countObjects adds the existing objects of a record to the count of their place; with -1 it takes them away.
func (r *Store) countObjects(rec *v1alpha1.AppliedWork, by int) {
	if rec == nil {
		return
	}
	for _, o := range rec.Status.Objects {
		if o.UID == "" {
			continue
		}
		p := place{o.Namespace, rec.Spec.Work.HubUID}
		if r.objectCount[p] += by; r.objectCount[p] == 0 {
			delete(r.objectCount, p)
		}
	}
}
