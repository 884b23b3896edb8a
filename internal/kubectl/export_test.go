// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// placed is the Assignment of an object, in Active targets.
func placed(kind, name string, dependencies []v1alpha1.DependencyReference, clusters ...v1alpha1.ClusterName) *v1alpha1.Assignment {
	group := map[bool]string{true: "apps"}[kind == "Deployment"]
	a := &v1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.WorkName(group, kind, "shop", name)},
		Spec: v1alpha1.AssignmentSpec{
			Object:       v1alpha1.ObjectReference{Group: group, Version: "v1", Kind: kind, Namespace: "shop", Name: name, UID: "u-1"},
			Dependencies: dependencies,
		},
	}
	for _, c := range clusters {
		a.Spec.Targets = append(a.Spec.Targets, v1alpha1.Target{Cluster: c, State: v1alpha1.TargetActive})
	}
	return a
}

// exportKinds maps the words of the tests.
func exportKinds(word string) (*meta.RESTMapping, error) {
	kinds := map[string]schema.GroupVersionKind{
		"deployment": {Group: "apps", Version: "v1", Kind: "Deployment"}, "configmap": {Version: "v1", Kind: "ConfigMap"},
	}
	return &meta.RESTMapping{GroupVersionKind: kinds[word]}, nil
}

// The plan of an export has what only exported objects need, and keeps what others need.
func TestExportPlan(t *testing.T) {
	t.Parallel()
	settings := []v1alpha1.DependencyReference{{Kind: "ConfigMap", Name: "settings"}, {Kind: "ConfigMap", Name: "shared"}}
	moving := placed("Deployment", "moving", nil, "east", "west")
	moving.Spec.Targets[0].State = v1alpha1.TargetDraining
	letGo, removed := placed("Deployment", "let-go", nil, "east"), placed("Deployment", "removed", nil, "east")
	letGo.Spec.Decision.OnDelete, removed.Spec.Decision.OnDelete = v1alpha1.OnDeleteOrphan, v1alpha1.OnDeleteDelete
	letGo.Spec.Targets[0].State, removed.Spec.Targets[0].State = v1alpha1.TargetRemoving, v1alpha1.TargetRemoving
	west := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
	objects := []client.Object{
		west, moving, letGo, removed, placed("Deployment", "web", settings, "east"), placed("Deployment", "api", settings[1:], "east", "west"),
		placed("ConfigMap", "settings", nil, "east"), placed("ConfigMap", "shared", nil, "east", "west"), placed("ConfigMap", "nowhere", nil),
	}
	for name, tc := range map[string]struct {
		reason, cluster string
		arguments       []objectArgument
		want            []string
		refused         bool
		err             string
	}{
		"One": {
			"What api needs, too, stays.", "", []objectArgument{{"shop", "deployment", "web"}}, []string{
				"Deployment shop/web: continues in east, and is deleted at the hub",
				"ConfigMap shop/settings: continues in east, and is deleted at the hub (only Deployment shop/web needs it)",
				"ConfigMap shop/shared: stays at the hub for east, west, because Deployment shop/api needs it",
			}, false, "",
		},
		"Dependency": {"It is deleted at the hub by request.", "", []objectArgument{{"shop", "configmap", "settings"}}, []string{"ConfigMap shop/settings: continues in east, and is deleted at the hub"}, false, ""},
		"Unreachable": {
			"The order waits for the cluster.", "", []objectArgument{{"shop", "deployment", "api"}}, []string{
				"Deployment shop/api: continues in east, west, and is deleted at the hub; west is not reachable, and lets go of it when it is back",
				"ConfigMap shop/shared: stays at the hub for east, west, because Deployment shop/web needs it",
			}, false, "",
		},
		"Moving":  {"The move would remove it in east.", "", []objectArgument{{"shop", "deployment", "moving"}}, []string{"Deployment shop/moving: refused: it is leaving east (Draining): wait for the end of its move, because that removes it there"}, true, ""},
		"Let go":  {"An export was interrupted.", "", []objectArgument{{"shop", "deployment", "let-go"}}, []string{"Deployment shop/let-go: continues in east, and is deleted at the hub"}, false, ""},
		"Removed": {"A user has deleted it, in east, too.", "", []objectArgument{{"shop", "deployment", "removed"}}, []string{"Deployment shop/removed: refused: it is leaving east (Removing): wait for the end of its move, because that removes it there"}, true, ""},
		"In":      {"It also runs in west.", "east", []objectArgument{{"shop", "deployment", "api"}}, []string{"Deployment shop/api: refused: it is in east, west: move it to east first, or leave --in out", "ConfigMap shop/shared: stays at the hub for east, west, because Deployment shop/web needs it"}, true, ""},
		"Not in":  {"It is in another cluster.", "west", []objectArgument{{"shop", "deployment", "web"}}, []string{""}, false, ""},
		"Nowhere": {"No cluster has it.", "", []objectArgument{{"shop", "configmap", "nowhere"}}, nil, false, "ConfigMap shop/nowhere is in no cluster, or is not at this hub"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planner := &exportPlanner{hub: fakeHub(t, interceptor.Funcs{}, objects...), cluster: tc.cluster, kindOf: exportKinds}
			plan, err := planner.Plan(t.Context(), tc.arguments)
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			var out bytes.Buffer
			if err := errors.Join(err, plan.print(&out)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")); diff != "" || plan.isRefused() != tc.refused {
				t.Errorf("%s\nrefused: %t; -want +got\n%s", tc.reason, plan.isRefused(), diff)
			}
		})
	}
}

// An export deletes nothing at the hub before each Work has the policy Orphan: a hub of an earlier
// version does not know the annotation, and its agents would delete the object.
func TestExportDeletesNothingUnannounced(t *testing.T) {
	t.Parallel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", UID: "u-1"}}
	for name, tc := range map[string]struct{ reason, assignment, work, want string }{
		"Assignment": {"The hub has not read the annotation.", "Delete", "Delete", "the hub has not read the annotation placement.patchbay.io/on-delete yet"},
		"Work":       {"The Work outlives a lost Assignment.", "Orphan", "Delete", "the Work in east does not say yet that the cluster keeps it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := placed("ConfigMap", "settings", nil, "east")
			a.Spec.Decision.OnDelete = v1alpha1.OnDelete(tc.assignment)
			w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-east", Name: a.Name}, Spec: v1alpha1.WorkSpec{OnDelete: v1alpha1.OnDelete(tc.work)}}
			hub := fakeHub(t, interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return errors.New("the object is deleted")
			}}, cm.DeepCopy(), a, w)
			err := (&exporter{hub: hub, timeout: time.Millisecond, out: &bytes.Buffer{}}).Run(t.Context(), &exportPlan{objects: []*exportedObject{{assignment: a}}})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "nothing was deleted; repeat the command") {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.want)
			}
			got := &corev1.ConfigMap{}
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(cm), got); err != nil || got.Annotations[v1alpha1.OnDeleteAnnotation] != "Orphan" {
				t.Errorf("%s\ngot annotations %v, %v, want Orphan", tc.reason, got.Annotations, err)
			}
		})
	}
}

// A repeated export ends well when the objects of the earlier one go while it runs.
func TestExportOfWhatIsExported(t *testing.T) {
	t.Parallel()
	a := placed("ConfigMap", "settings", nil, "east")
	a.Spec.Decision.OnDelete, a.Spec.Targets[0].State = v1alpha1.OnDeleteOrphan, v1alpha1.TargetRemoving
	var out bytes.Buffer
	err := (&exporter{hub: fakeHub(t, interceptor.Funcs{}, a), timeout: time.Minute, out: &out}).Run(t.Context(), &exportPlan{objects: []*exportedObject{{assignment: a}}})
	if want := "ConfigMap shop/settings is exported: it continues in east\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

// A repeated export does not write what an earlier one has written: it would never end where each write ends the command.
func TestExportAnnotatesOnce(t *testing.T) {
	t.Parallel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "settings", UID: "u-1", Annotations: map[string]string{v1alpha1.OnDeleteAnnotation: string(v1alpha1.OnDeleteOrphan)},
	}}
	a := placed("ConfigMap", "settings", nil, "east")
	a.Spec.Decision.OnDelete = v1alpha1.OnDeleteOrphan
	hub := fakeHub(t, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return errors.New("it is annotated again")
	}}, cm, a)
	if err := (&exporter{hub: hub, timeout: time.Minute, out: &bytes.Buffer{}}).Run(t.Context(), &exportPlan{objects: []*exportedObject{{assignment: a}}}); err != nil {
		t.Error(err)
	}
}

// revertOnDelete removes the annotation on-delete of an object, as another client.
func revertOnDelete(ctx context.Context, t *testing.T, hub client.WithWatch, o *corev1.ConfigMap) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"placement.patchbay.io/on-delete":null}}}`))
	if err := hub.Patch(ctx, o.DeepCopy(), patch); err != nil {
		t.Error(err)
	}
}

// A client that reverts the annotation, such as a GitOps tool, does not make an export delete the object: the clusters
// would delete it, too. An annotation clusters of the object does not make it one that stays at the hub.
func TestExportReadsAnnotationAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, when, recorded string }{
		"BeforeCheck":  {"The hub never reads Orphan.", "Patch", "Delete"},
		"BeforeDelete": {"The hub has read Orphan, and may read its loss after the deletion.", "Delete", "Orphan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "settings", UID: "u-1", Annotations: map[string]string{v1alpha1.ClustersAnnotation: "east"},
			}}
			a := placed("ConfigMap", "settings", nil, "east")
			a.Spec.Decision = v1alpha1.Decision{Source: v1alpha1.SourceAnnotation, OnDelete: v1alpha1.OnDelete(tc.recorded)}
			revert := func(ctx context.Context, hub client.WithWatch, when string) {
				if tc.when == when {
					revertOnDelete(ctx, t, hub, cm)
				}
			}
			hub := fakeHub(t, interceptor.Funcs{
				Patch: func(ctx context.Context, hub client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
					err := hub.Patch(ctx, o, p, options...)
					revert(ctx, hub, "Patch")
					return err
				},
				Delete: func(ctx context.Context, hub client.WithWatch, o client.Object, options ...client.DeleteOption) error {
					revert(ctx, hub, "Delete")
					return hub.Delete(ctx, o, options...)
				},
			}, cm.DeepCopy(), a)
			err := (&exporter{hub: hub, timeout: time.Minute, out: &bytes.Buffer{}}).Run(t.Context(), &exportPlan{objects: []*exportedObject{{assignment: a}}})
			if want := `must be Orphan, but another client has set it to ""`; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, want)
			}
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(cm), &corev1.ConfigMap{}); err != nil {
				t.Errorf("%s\nat the hub: %v", tc.reason, err)
			}
		})
	}
}

// Each cluster gets the manifests that it has. Secrets are in no file.
func TestWriteManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	web, secret := placed("Deployment", "web", nil, "east", "west"), placed("Secret", "password", nil, "east")
	objects := []client.Object{web, secret}
	for _, name := range []string{web.Name, secret.Name} {
		objects = append(objects, &v1alpha1.Work{
			ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-east", Name: name},
			Spec:       v1alpha1.WorkSpec{Manifests: []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: []byte(`{"kind":"Deployment","spec":{"replicas":2}}`)}}}},
		})
	}
	if err := writeManifests(t.Context(), fakeHub(t, interceptor.Funcs{}, objects...), dir, []*exportedObject{{assignment: web}, {assignment: secret}}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
	if want := []string{filepath.Join(dir, "east/shop/deployment.apps-web.yaml")}; err != nil || !cmp.Equal(files, want) {
		t.Fatalf("got %v, %v, want %v", files, err, want)
	}
	if raw, err := os.ReadFile(files[0]); err != nil || string(raw) != "kind: Deployment\nspec:\n  replicas: 2\n" {
		t.Errorf("got %q, %v", raw, err)
	}
}
