// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// What scales a workload goes where that goes, once the policy leaves the replicas to it.
func TestScalerGoesAlong(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("along")
	b.cluster("along-east", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "along-east", 2)
	b.create(d)
	b.create(&autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 9,
		},
	})
	scaler := Key{GroupKind: schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, Namespace: ns, Name: "web"}
	b.runs(deploymentKey(ns, "web"), map[string]int32{"along-east": 2})
	b.runs(scaler, map[string]int32{})
	b.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: v1alpha1.PlacementSpec{
			Objects:  []v1alpha1.ObjectSelector{{Group: "apps", Kind: "Deployment"}},
			Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"along-east"}},
			Apply:    v1alpha1.ApplyPolicy{Yield: []v1alpha1.FieldPath{"spec.replicas"}},
		},
	})
	b.runs(scaler, map[string]int32{"along-east": 0})
}
