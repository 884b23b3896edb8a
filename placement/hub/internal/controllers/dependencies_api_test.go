// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// An autoscaler is placed with its workload once the policy yields spec.replicas to it.
func TestAutoscalerFollowsWorkload(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("along")
	h.cluster("along-east", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "along-east", 2)
	h.create(d)
	h.create(&autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 9,
		},
	})
	autoscaler := kinds.Key{GroupKind: schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, Namespace: ns, Name: "web"}
	h.expectWorks(deploymentKey(ns, "web"), map[string]int32{"along-east": 2})
	h.expectWorks(autoscaler, map[string]int32{})
	h.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: v1alpha1.PlacementSpec{
			Objects:  []v1alpha1.ObjectSelector{{Group: "apps", Kind: "Deployment"}},
			Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"along-east"}},
			Apply:    v1alpha1.ApplyPolicy{Yield: []v1alpha1.FieldPath{"spec.replicas"}},
		},
	})
	h.expectWorks(autoscaler, map[string]int32{"along-east": 0})
}
