// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// workloadValidator validates our annotations in the templates of workloads, as podValidator will
// those of their Pods: the user who applies a Deployment never sees the answer to its Pods. The API
// server calls it for new and changed templates with such an annotation only, and admits a workload
// when no replica answers.
type workloadValidator struct{ checker network.PodChecker }

// workload has what the validator needs of a Deployment, StatefulSet, DaemonSet, ReplicaSet or Job,
// which have a template, or of a CronJob.
type workload struct {
	Spec struct {
		Template    podTemplate `json:"template"`
		JobTemplate struct {
			Spec struct {
				Template podTemplate `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

// podTemplate has what the validators need of a Pod or of a template of Pods. To decode all of a Pod would
// take most of the time of its validation.
type podTemplate struct {
	Metadata struct {
		Annotations     map[string]string       `json:"annotations"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork    bool             `json:"hostNetwork"`
		NodeName       string           `json:"nodeName"`
		Affinity       *corev1.Affinity `json:"affinity"`
		InitContainers []container      `json:"initContainers"`
		Containers     []container      `json:"containers"`
	} `json:"spec"`
}

// container has what the validators need of a container.
type container struct {
	RestartPolicy corev1.ContainerRestartPolicy `json:"restartPolicy"`
	// Resources is nil if the container has none.
	Resources *containerResources `json:"resources"`
}

// containerResources are the resources of a container; each map is nil if it is not there.
type containerResources struct {
	Requests map[string]resource.Quantity `json:"requests"`
	Limits   map[string]resource.Quantity `json:"limits"`
}

// model returns the template as the rules about networks see it. The path is that of the template; nil for
// a Pod.
func (t *podTemplate) model(namespace string, path *field.Path) network.PodTemplate {
	_, isMirror := t.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	p := network.PodTemplate{
		Namespace: namespace, Path: path, Annotations: t.Metadata.Annotations, HostNetwork: t.Spec.HostNetwork, Mirror: isMirror,
	}
	add := func(name string, i int, c *container, ends bool) {
		if c.Resources != nil {
			p.Containers = append(p.Containers, network.PodContainer{
				Path: path.Child("spec", name).Index(i), Ends: ends, Requests: c.Resources.Requests, Limits: c.Resources.Limits,
			})
		}
	}
	for i := range t.Spec.InitContainers {
		c := &t.Spec.InitContainers[i]
		add("initContainers", i, c, c.RestartPolicy != corev1.ContainerRestartPolicyAlways)
	}
	for i := range t.Spec.Containers {
		add("containers", i, &t.Spec.Containers[i], false)
	}
	if selector := requiredSelector(t.Spec.Affinity); selector != nil && !isMirror && needsAffinity(t) {
		p.AffinityTerms = len(selector.NodeSelectorTerms)
	}
	return p
}

// kindCronJob is the workload whose template is in the template of its Jobs.
const kindCronJob = "CronJob"

// Handle implements admission.Handler.
func (h *workloadValidator) Handle(ctx context.Context, r admission.Request) admission.Response {
	var w workload
	if err := decodeJSON(r.Object.Raw, &w); err != nil {
		return responseFor(fmt.Errorf("decode %s %s/%s: %w", r.Kind.Kind, r.Namespace, r.Name, err))
	}
	template, path := &w.Spec.Template, field.NewPath("spec", "template")
	if r.Kind.Kind == kindCronJob {
		template, path = &w.Spec.JobTemplate.Spec.Template, field.NewPath("spec", "jobTemplate", "spec", "template")
	}
	warnings, err := checkTemplate(ctx, &h.checker, template.model(r.Namespace, path), cacheDelay)
	if err != nil {
		return responseFor(err)
	}
	return admission.Allowed("").WithWarnings(warnings.All()...)
}
