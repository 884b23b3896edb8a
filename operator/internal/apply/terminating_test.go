// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// oneObject is an API server with one object, and the cache of it.
type oneObject struct {
	client.Client

	live    *metav1.PartialObjectMetadata
	applied int
}

// Get implements client.Client.
func (c *oneObject) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	metadata, ok := into.(*metav1.PartialObjectMetadata)
	switch {
	case !ok:
		return errors.New("only metadata is stored")
	case c.live == nil:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	c.live.DeepCopyInto(metadata)
	return nil
}

// Apply implements client.Client. It creates the object if there is none, changes nothing otherwise, and answers with it.
func (c *oneObject) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	sent, ok := o.(interface {
		SetUID(types.UID)
		SetResourceVersion(string)
		SetFinalizers([]string)
		SetDeletionTimestamp(*metav1.Time)
	})
	if !ok {
		return errors.New("the answer cannot be set")
	}
	c.applied++
	if c.live == nil {
		c.live = metadataOf(definitionKind())
		c.live.Name, c.live.UID, c.live.ResourceVersion = "networks.example.com", "2", "7"
	}
	sent.SetUID(c.live.UID)
	sent.SetResourceVersion(c.live.ResourceVersion)
	sent.SetFinalizers(c.live.Finalizers)
	sent.SetDeletionTimestamp(c.live.DeletionTimestamp)
	return nil
}

func definitionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
}

// An object that is being deleted is as desired only until it is gone. It needs no request in each pass.
func TestTerminating(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(definitionKind())
	definition.SetName("networks.example.com")
	server := &oneObject{}
	a := New(server, server)
	steps := []struct {
		reason  string
		change  func()
		want    string
		applied int
	}{
		{"It is created.", func() {}, "", 1},
		{"It is as it was applied.", func() {}, "", 1},
		{
			"A user deletes it.", func() {
				server.live.DeletionTimestamp, server.live.ResourceVersion = &now, "8"
				server.live.Finalizers = []string{"example.com/b", definitionFinalizer}
			},
			"CustomResourceDefinition networks.example.com must be gone before it is applied again: it is being deleted, and its finalizers are " +
				definitionFinalizer + ", example.com/b. kubectl get networks.example.com --all-namespaces lists the objects that are deleted with it", 1,
		},
		{"Nothing has changed.", func() {}, "must be gone before it is applied again", 1},
		{
			"A finalizer is left.", func() { server.live.Finalizers, server.live.ResourceVersion = []string{"example.com/b"}, "9" },
			"its finalizers are example.com/b", 1,
		},
		{"An operator that has started again knows nothing of it.", func() { a = New(server, server) }, "its finalizers are example.com/b", 2},
		{"It is gone, and applied again.", func() { server.live = nil }, "", 3},
		{"It stays.", func() {}, "", 3},
	}
	for _, s := range steps {
		s.change()
		err := a.Apply(t.Context(), render.Object{Unstructured: definition})
		_, isTerminating := errors.AsType[*TerminatingError](err)
		if isTerminating != (s.want != "") || isTerminating != (err != nil) || isTerminating && !strings.Contains(err.Error(), s.want) {
			t.Fatalf("%s Got %v, want %q", s.reason, err, s.want)
		}
		if server.applied != s.applied {
			t.Fatalf("%s Got %d requests, want %d", s.reason, server.applied, s.applied)
		}
	}
}
