// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/handover"
)

// inCluster returns a cluster with a ServiceAccount, and the object of its import.
func inCluster(t *testing.T, labels, annotations map[string]string) (client.Client, *importedObject) {
	t.Helper()
	account := &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "builder", UID: "u-1", Labels: labels, Annotations: annotations},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(account)
	if err != nil {
		t.Fatal(err)
	}
	return fakeHub(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if err := ctx.Err(); err != nil { // the fake client ignores it
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
	}, account), &importedObject{live: &unstructured.Unstructured{Object: content}}
}

// When the hub does not take the object, the agent must not be able to adopt it later: any user of the hub's namespace
// might create an object by that name.
func TestRejectedImportTakesLabelBack(t *testing.T) {
	t.Parallel()
	errRejected := errors.New("exceeded quota")
	for name, tc := range map[string]struct {
		reason     string
		before     map[string]string
		exists     bool
		interrupts bool
	}{
		"Created":     {"The hub rejects the object.", nil, false, false},
		"Use":         {"The admin's own label comes back.", map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessUse}, false, false},
		"Annotated":   {"The hub rejects the annotation of an object that it has.", nil, true, false},
		"Interrupted": {"The user stops the command.", nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cluster, o := inCluster(t, tc.before, nil)
			key, wasLabelled := client.ObjectKeyFromObject(o.live), false
			reject := func() error {
				live := &corev1.ServiceAccount{}
				err := cluster.Get(t.Context(), key, live)
				wasLabelled = live.Labels[v1alpha1.AccessLabel] == v1alpha1.AccessAdopt
				if tc.interrupts {
					cancel()
				}
				return errors.Join(errRejected, err)
			}
			hub := fakeHub(t, interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return reject() },
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return reject()
				},
			})
			if !tc.exists {
				o.forHub = handover.ForHub(o.live, "east")
			}
			a := &adopter{hub: hub, cluster: cluster, name: "east", timeout: time.Minute, out: &bytes.Buffer{}}
			if err := a.Run(ctx, &importPlan{objects: []*importedObject{o}}); !errors.Is(err, errRejected) || !wasLabelled {
				t.Errorf("%s\ngot %v, labelled before: %t", tc.reason, err, wasLabelled)
			}
			live := &corev1.ServiceAccount{}
			if err := cluster.Get(t.Context(), key, live); err != nil || live.Labels[v1alpha1.AccessLabel] != tc.before[v1alpha1.AccessLabel] {
				t.Errorf("%s\ngot labels %v, %v, want %v", tc.reason, live.Labels, err, tc.before)
			}
		})
	}
}

// An object that the agent has adopted for another object of the hub is not imported.
func TestImportChecksSource(t *testing.T) {
	t.Parallel()
	cluster, o := inCluster(t, map[string]string{v1alpha1.ManagedLabel: "true"}, map[string]string{v1alpha1.SourceUIDAnnotation: "another"})
	o.hubUID = "created"
	assignment := placed("ServiceAccount", "builder", nil, "east")
	assignment.Status.Clusters = []v1alpha1.ClusterReport{{Cluster: "east", Applied: true, Ready: true}}
	a := &adopter{hub: fakeHub(t, interceptor.Funcs{}, assignment), cluster: cluster, name: "east", timeout: time.Minute, out: &bytes.Buffer{}}
	err := a.Run(t.Context(), &importPlan{objects: []*importedObject{o}})
	if want := "its UID must be created, and is another"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
