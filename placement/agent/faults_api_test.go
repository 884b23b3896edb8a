// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package agent_test

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Whatever fails between an agent and its hub, and between it and its cluster, it applies,
// repairs and removes as it does without, and makes nothing twice. Each trouble has an API server
// of its own: about 20 s each, and the 30 s of requests that hang.
func TestAgentMeetsFaults(t *testing.T) {
	t.Parallel()
	for _, trouble := range apitest.Troubles() {
		t.Run(trouble.Name, func(t *testing.T) {
			t.Parallel()
			t.Log(trouble.Reason)
			b := prepare(t)
			b.runBetween(t, trouble.Meet(b.env.Config), trouble.Meet(b.local()))
			b.live(t)
		})
	}
}

// live has an object made, changed, repaired and removed.
func (b *bench) live(t *testing.T) {
	t.Helper()
	w := b.work(t, "life", nil, manifest(t, "configmaps", configMap("life", "first")))
	made := b.await(t, "first", "")
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Manifests[0] = manifest(t, "configmaps", configMap("life", "second"))
	})
	if changed := b.await(t, "second", ""); changed.GetUID() != made.GetUID() {
		t.Errorf("UID: got %s, want %s: the object is changed, not made again", changed.GetUID(), made.GetUID())
	}
	b.awaitWork(t, w, "the second revision is applied", applied(2))
	if err := b.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	repaired := b.await(t, "second", made.GetUID())
	b.awaitWork(t, w, "the repair is reported", func(s v1alpha1.WorkStatus) bool {
		return applied(2)(s) && s.Manifests[0].UID == repaired.GetUID()
	})
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1"}
	})
	b.awaitWork(t, w, "the order is carried out", failed(v1alpha1.ReasonOrdered, ""))
	if b.object(t, "v1", "ConfigMap", "default", "life") != nil {
		t.Error("the object is still there, and the hub was told that it is not")
	}
	eventually(t, "the record to go", func() error {
		if b.object(t, v1alpha1.SchemeGroupVersion().String(), "AppliedWork", "", "life") != nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

// await waits until the object has the value, and not the UID.
func (b *bench) await(t *testing.T, value string, not types.UID) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	eventually(t, "the object to have "+value, func() error {
		found = b.object(t, "v1", "ConfigMap", "default", "life")
		if got := field(found, "data", "key"); got != value || found.GetUID() == not {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
	return found
}
