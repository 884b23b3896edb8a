// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// fakeHub returns a fake client with the objects.
func fakeHub(t *testing.T, calls interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := newPlacementScheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(calls).Build()
}

func TestParseKindAndName(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		args       []string
		kind, name string
	}{
		"Slash":     {reason: "kubectl get -o name prints this form", args: []string{"deployment.apps/web"}, kind: "deployment.apps", name: "web"},
		"Words":     {reason: "kubectl get accepts this form", args: []string{"cm", "web"}, kind: "cm", name: "web"},
		"NameOnly":  {reason: "objects of many kinds may have the name", args: []string{"web"}},
		"KindOnly":  {reason: "the verb is for one object", args: []string{"cm/"}},
		"NoKind":    {reason: "the kind is missing", args: []string{"/web"}},
		"Namespace": {reason: "the namespace is a flag, not a part of the argument", args: []string{"cm/shop/web"}},
		"Mixed":     {reason: "the verb is for one object only", args: []string{"cm/a", "b"}},
		"Empty":     {reason: "a variable of a script may be empty", args: []string{"cm", ""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, object, err := parseKindAndName(tc.args)
			if kind != tc.kind || object != tc.name || (err == nil) != (tc.kind != "") {
				t.Errorf("%s: got %q, %q, %v, want %q, %q", tc.reason, kind, object, err, tc.kind, tc.name)
			}
		})
	}
}

// The command that a dry run prints is the called one, without credentials.
func TestCommandWithYes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Plain":       {reason: "nothing is added", args: []string{"cm/web"}, want: "kubectl patchbay remove cm/web --yes"},
		"Hub":         {reason: "the command must be for the same hub", args: []string{"cm/web", "-n", "shop", "--context=hub"}, want: "kubectl patchbay remove cm/web --context=hub --namespace=shop --yes"},
		"Flags":       {reason: "the verb's own flags are kept", args: []string{"cm", "web", "--timeout=1m"}, want: "kubectl patchbay remove cm web --timeout=1m0s --yes"},
		"Credentials": {reason: "credentials are not printed", args: []string{"cm/web", "--token=secret", "--password=secret"}, want: "kubectl patchbay remove cm/web --yes"},
		"Quoted":      {reason: "the command is pasted into a shell", args: []string{"cm/web", "--kubeconfig=/a b/it's"}, want: `kubectl patchbay remove cm/web --kubeconfig='/a b/it'\''s' --yes`},
		"Yes":         {reason: "--yes appears once", args: []string{"cm/web", "--yes"}, want: "kubectl patchbay remove cm/web --yes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got string
			root := newRoot(genericiooptions.NewTestIOStreamsDiscard())
			cmd, _, err := root.Find([]string{"remove"})
			if err != nil {
				t.Fatal(err)
			}
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				got = commandWithYes(cmd, args, "wait", "timeout")
				return nil
			}
			root.SetArgs(append([]string{"remove"}, tc.args...))
			if err := root.Execute(); err != nil || got != tc.want {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

// placedObject returns an object of the hub and its Assignment.
func placedObject(kind string, targets ...v1alpha1.Target) (*metav1.PartialObjectMetadata, *v1alpha1.Assignment) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
	return o, &v1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.WorkName("", kind, "shop", "web")},
		Spec:       v1alpha1.AssignmentSpec{Targets: targets},
	}
}

func TestRemovalPrintsEffects(t *testing.T) {
	t.Parallel()
	const last = "Nothing was changed. To remove it: again"
	active := func(cluster string) v1alpha1.Target {
		return v1alpha1.Target{Cluster: v1alpha1.ClusterName(cluster), State: v1alpha1.TargetActive}
	}
	cases := map[string]struct {
		reason       string
		kind         string
		targets      []v1alpha1.Target
		decision     v1alpha1.Decision
		dependencies []v1alpha1.DependencyReference
		dependents   map[v1alpha1.ClusterName]string
		value        *string // of the annotation
		want         []string
	}{
		"Deleted": {
			reason: "each cluster with the object is listed", kind: "ConfigMap", targets: []v1alpha1.Target{active("east"), active("west")},
			want: []string{"east: ConfigMap shop/web is deleted", "west: ConfigMap shop/web is deleted (not reachable: the order reaches it when it is back)", last},
		},
		"Orphaned": {
			reason: "the policy orphans the object", kind: "ConfigMap", targets: []v1alpha1.Target{active("east")}, decision: v1alpha1.Decision{OnDelete: v1alpha1.OnDeleteOrphan},
			want: []string{"east: ConfigMap shop/web is orphaned: it stays there, and Patchbay does not manage it any more", last},
		},
		"Claim": {
			reason: "a claim has data, so it is orphaned by default", kind: "PersistentVolumeClaim", targets: []v1alpha1.Target{active("east")},
			want: []string{"east: PersistentVolumeClaim shop/web is orphaned: it stays there, and Patchbay does not manage it any more", last},
		},
		"DeletedClaim": {
			reason: "the policy may delete claims", kind: "PersistentVolumeClaim", targets: []v1alpha1.Target{active("east")}, decision: v1alpha1.Decision{OnDelete: v1alpha1.OnDeleteDelete},
			want: []string{"east: PersistentVolumeClaim shop/web is deleted", last},
		},
		"States": {
			reason: "not every target has the object", kind: "ConfigMap",
			targets: []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetPending}, {Cluster: "south", State: v1alpha1.TargetRemoving}},
			want: []string{
				"east: ConfigMap shop/web is not there yet, and is not created", "south: ConfigMap shop/web is deleted (the hub has ordered that already)", last,
			},
		},
		"Follows": {
			reason: "dependencies are listed", kind: "ConfigMap", targets: []v1alpha1.Target{active("east")},
			dependencies: []v1alpha1.DependencyReference{{Kind: "Secret", Name: "key"}, {Kind: "PersistentVolumeClaim", Name: "data"}},
			want: []string{
				"east: ConfigMap shop/web is deleted", "Removed after it, unless selected or needed otherwise: Secret shop/key",
				"Kept in the clusters: PersistentVolumeClaim shop/data", last,
			},
		},
		"Needed": {
			reason: "the object stays where another object depends on it", kind: "ConfigMap", targets: []v1alpha1.Target{active("east"), active("south")},
			dependents: map[v1alpha1.ClusterName]string{"south": "Deployment shop/web"},
			want:       []string{"east: ConfigMap shop/web is deleted", "south: ConfigMap shop/web stays as long as Deployment shop/web needs it there", last},
		},
		"NoCluster": {reason: "the order is for clusters that are selected later, too", kind: "ConfigMap", want: []string{"ConfigMap shop/web is in no cluster; the order keeps it out of all clusters", last}},
		"Again": {
			reason: "a second order has no effect", kind: "ConfigMap", value: new(""), targets: []v1alpha1.Target{active("east")},
			want: []string{"east: ConfigMap shop/web is deleted", "The removal is ordered already."},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, a := placedObject(tc.kind, tc.targets...)
			a.Spec.Decision, a.Spec.Dependencies = tc.decision, tc.dependencies
			if tc.value != nil {
				o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: *tc.value}
			}
			var out bytes.Buffer
			r := &removal{object: o, command: "again", dependents: tc.dependents}
			if err := r.print(&out, a, map[string]bool{"east": true, "west": false}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// The order is for the version that was read. If the object has changed since, the removal is ordered
// only if the annotation is unchanged.
func TestOrderRemoval(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "web", nil)
	cases := map[string]struct {
		reason string
		fresh  metav1.ObjectMeta // what the second read returns
		err    string
	}{
		"Same":      {reason: "another field has changed", fresh: metav1.ObjectMeta{UID: "u1", ResourceVersion: "2"}},
		"Recreated": {reason: "the object was created again", fresh: metav1.ObjectMeta{UID: "u2", ResourceVersion: "2"}, err: "was deleted and created again"},
		"Moved": {
			reason: "a user selected clusters", fresh: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{v1alpha1.ClustersAnnotation: "west"}},
			err: "was changed meanwhile",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var patches []string
			c := fakeHub(t, interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
					raw, err := p.Data(o)
					if err != nil {
						return err
					}
					if patches = append(patches, string(raw)); len(patches) == 1 {
						return conflict
					}
					return nil
				},
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					o.SetUID(tc.fresh.UID)
					o.SetResourceVersion(tc.fresh.ResourceVersion)
					o.SetAnnotations(tc.fresh.Annotations)
					return nil
				},
			})
			o, _ := placedObject("ConfigMap")
			o.ResourceVersion = "1"
			err := (&removal{object: o}).orderRemoval(t.Context(), c)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || len(patches) != 1 {
					t.Errorf("%s: got %v after %d patches, want %q after one", tc.reason, err, len(patches), tc.err)
				}
				return
			}
			want := []string{
				`{"metadata":{"annotations":{"placement.patchbay.io/clusters":""},"resourceVersion":"1","uid":"u1"}}`,
				`{"metadata":{"annotations":{"placement.patchbay.io/clusters":""},"resourceVersion":"2","uid":"u1"}}`,
			}
			if diff := cmp.Diff(want, patches); err != nil || diff != "" {
				t.Errorf("%s: got %v, -want +got\n%s", tc.reason, err, diff)
			}
		})
	}
}

// The removal of an object that is not placed is an error.
func TestRemovalWithoutAssignment(t *testing.T) {
	t.Parallel()
	o, a := placedObject("ConfigMap")
	r := &removal{object: o, assignment: client.ObjectKeyFromObject(a)}
	var out bytes.Buffer
	if err := r.run(t.Context(), fakeHub(t, interceptor.Funcs{}), &out); err == nil || !strings.Contains(err.Error(), "ConfigMap shop/web has no Assignment (shop/configmap-web-") {
		t.Errorf("got %v, want the Assignment's name", err)
	}
	// A tenant may have no permission to list Clusters.
	forbidden := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, ok := list.(*v1alpha1.ClusterList); !ok {
			return c.List(ctx, list, options...)
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, "", nil)
	}}
	if err := r.run(t.Context(), fakeHub(t, forbidden, a), &out); err != nil || !strings.Contains(out.String(), "is in no cluster") {
		t.Errorf("got %q, %v, want the rest", out.String(), err)
	}
}

// The command ends when the object is removed from all clusters in which no other object depends on it.
func TestRemovalOfADependency(t *testing.T) {
	t.Parallel()
	annotated := v1alpha1.Decision{Source: v1alpha1.SourceAnnotation}
	for name, tc := range map[string]struct {
		reason   string
		decision v1alpha1.Decision
		targets  []v1alpha1.Target
		want     bool
	}{
		"Left":      {"Only the cluster with the dependent object is left.", annotated, []v1alpha1.Target{{Cluster: "south", State: v1alpha1.TargetActive}}, true},
		"Elsewhere": {"The cluster east has not removed the object yet.", annotated, []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetRemoving}, {Cluster: "south", State: v1alpha1.TargetActive}}, false},
		"Early":     {"The hub has not processed the order.", v1alpha1.Decision{Source: "Placement shop/p"}, []v1alpha1.Target{{Cluster: "south", State: v1alpha1.TargetActive}}, false},
		"Leaves":    {"The object is removed with the dependent object.", annotated, []v1alpha1.Target{{Cluster: "south", State: v1alpha1.TargetRemoving}}, false},
		"All":       {"No cluster has the object.", annotated, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, a := placedObject("ConfigMap", tc.targets...)
			dependent := &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web"}, Spec: v1alpha1.AssignmentSpec{
				Object:       v1alpha1.ObjectReference{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"},
				Dependencies: []v1alpha1.DependencyReference{{Kind: "ConfigMap", Name: "web"}}, Targets: []v1alpha1.Target{{Cluster: "south"}},
			}}
			a.Spec.Decision = tc.decision
			r := &removal{object: o, assignment: client.ObjectKeyFromObject(a)}
			if err := r.findDependents(t.Context(), fakeHub(t, interceptor.Funcs{}, a, dependent)); err != nil {
				t.Fatal(err)
			}
			if got := r.isDone(a); got != tc.want {
				t.Errorf("%s\ndone: got %t, want %t; dependents %v", tc.reason, got, tc.want, r.dependents)
			}
		})
	}
}

func TestWaitError(t *testing.T) {
	t.Parallel()
	o, a := placedObject("ConfigMap",
		v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetRemoving}, v1alpha1.Target{Cluster: "north", State: v1alpha1.TargetRemoving},
		v1alpha1.Target{Cluster: "south", State: v1alpha1.TargetActive}, v1alpha1.Target{Cluster: "west", State: v1alpha1.TargetRemoving},
		v1alpha1.Target{Cluster: "far", State: v1alpha1.TargetRemoving},
	)
	a.Status.Clusters = []v1alpha1.ClusterReport{{Cluster: "east", Message: "a finalizer blocks the deletion"}, {Cluster: "far", Message: "a finalizer blocks the deletion"}}
	a.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoPolicy, Message: "it stays"},
		{Type: v1alpha1.ConditionMoveBlocked, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProgressing},
	}
	r := &removal{object: o, assignment: client.ObjectKeyFromObject(a), timeout: time.Minute}
	reachable := map[string]bool{"east": true, "north": true, "south": true, "west": false, "far": false}
	cases := map[string]struct {
		reason string
		err    error
		last   *v1alpha1.Assignment
		want   []string
	}{
		"Timeout": {reason: "each cluster is listed", err: context.DeadlineExceeded, last: a, want: []string{
			"ConfigMap shop/web is not removed within 1m0s; the order stays, and the hub continues",
			"Placed=False, NoPolicy: it stays",
			"east: a finalizer blocks the deletion",
			"north: the removal is ordered, and the cluster has not reported it as done",
			"south: the hub has not ordered the removal yet (Active): check that patchbay-hub runs",
			"west: the cluster is not reachable; the order reaches it when it is back",
			"far: a finalizer blocks the deletion (not reachable: this is its last report)",
		}},
		"Interrupt": {reason: "an interrupt does not cancel the order", err: context.Canceled, last: a, want: []string{"interrupted while waiting: the removal of ConfigMap shop/web is ordered and continues"}},
		"Unseen": {reason: "the Assignment may not be readable", err: context.DeadlineExceeded, want: []string{
			"ConfigMap shop/web is not removed within 1m0s; the order stays, and the hub continues", "assignment " + r.assignment.String() + " could not be read",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, strings.Split(r.waitError(tc.err, tc.last, reachable).Error(), "\n")); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
