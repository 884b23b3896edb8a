// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// reachableCluster is an accepted Cluster with a region; change may be nil.
func reachableCluster(name, region string, change func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": region}}, Spec: v1alpha1.ClusterSpec{Accepted: true},
		Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeartbeatReceived}}},
	}
	if change != nil {
		change(c)
	}
	return c
}

// Each cluster has its state, and the reason for which it is not used.
func TestExplain(t *testing.T) {
	t.Parallel()
	silent := func(c *v1alpha1.Cluster) {
		c.Status.Conditions[0] = metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHeartbeatLost, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}
	}
	clusters := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, reachableCluster("east", "eu", nil), reachableCluster("far", "us", nil), reachableCluster("silent", "eu", silent),
		reachableCluster("drained", "eu", func(c *v1alpha1.Cluster) { c.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainMove} }),
		reachableCluster("tainted", "eu", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "gpu", Value: "yes", Effect: v1alpha1.TaintNoSchedule}}
			c.Spec.Unschedulable = true
		}),
	}
	eu := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "eu"}, Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}}}
	tied := eu.DeepCopy()
	tied.Name = "too"
	counted := eu.DeepCopy()
	counted.Spec.Clusters = v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"far", "east"}, Count: new(int32(1))}
	for name, tc := range map[string]struct {
		reason     string
		policies   []client.Object
		annotation *string
		targets    []v1alpha1.Target
		conditions []metav1.Condition
		source     string
		want       string
	}{
		"Policy": {
			reason: "each cluster has its reason", policies: []client.Object{eu},
			targets:    []v1alpha1.Target{{Cluster: "drained", State: v1alpha1.TargetDraining}, {Cluster: "east", State: v1alpha1.TargetActive}},
			conditions: []metav1.Condition{{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionTrue, Reason: "AsExpected", Message: "it is placed"}},
			want: `ConfigMap shop/web
Policy: Placement shop/eu (replicas: Duplicate)
Placed: True, AsExpected: it is placed

CLUSTER  STATE     REPLICAS  FIT    REASON
drained  Draining  -         no     is being drained
east     Active    -         yes
far      -         -         no     its labels do not match the selector region=eu
silent   -         -         keeps  does not report
tainted  -         -         keeps  is unschedulable; has the taint gpu=yes:NoSchedule, which the policy does not tolerate
`,
		},
		"Annotation": {
			reason: "the object comes before the policy", policies: []client.Object{eu}, annotation: new("far"),
			want: `ConfigMap shop/web
Policy: the annotation, before Placement shop/eu, whose other fields are in force (replicas: Duplicate)

CLUSTER  STATE  REPLICAS  FIT  REASON
drained  -      -         no   it is not named
east     -      -         no   it is not named
far      -      -         yes
silent   -      -         no   it is not named
tainted  -      -         no   it is not named
`,
		},
		"Count": {
			reason: "the count is reached", policies: []client.Object{counted},
			want: `ConfigMap shop/web
Policy: Placement shop/eu (replicas: Duplicate)

CLUSTER  STATE  REPLICAS  FIT  REASON
drained  -      -         no   it is not named
east     -      -         no   spec.clusters.count is 1: chosen before it: far
far      -      -         yes
silent   -      -         no   it is not named
tainted  -      -         no   it is not named
`,
		},
		"Tie": {
			reason: "the mistake is named", policies: []client.Object{eu, tied},
			want: "ConfigMap shop/web\nPolicy: none selects it; it stays at the hub\nMistake: PolicyTie: Placement shop/eu: spec.objects: Placement shop/too selects this object too: leave it out of one of them, or set the annotation placement.patchbay.io/clusters\n",
		},
		"Dependency": {
			reason: "it follows another object", source: sourceDependents, targets: []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}},
			want: "ConfigMap shop/web\nPolicy: none selects it; it is placed with the objects that need it\n\nCLUSTER  STATE   REPLICAS  FIT  REASON\neast     Active  -         -\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, a := placedObject("ConfigMap", tc.targets...)
			a.Spec.Decision.Source, a.Status.Conditions = tc.source, tc.conditions
			cm := &corev1.ConfigMap{ObjectMeta: o.ObjectMeta}
			if tc.annotation != nil {
				cm.Annotations = map[string]string{v1alpha1.ClustersAnnotation: *tc.annotation}
			}
			objects := append(append([]client.Object{cm, a}, clusters...), tc.policies...)
			mapping := &meta.RESTMapping{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Scope: meta.RESTScopeNamespace}
			var out bytes.Buffer
			if err := explainObject(t.Context(), fakeHub(t, interceptor.Funcs{}, objects...), mapping, "shop", "web", &out); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range strings.Lines(out.String()) {
				lines = append(lines, strings.TrimRight(line, " \n")+"\n")
			}
			if diff := cmp.Diff(tc.want, strings.Join(lines, "")); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
