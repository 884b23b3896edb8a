// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// podMutator adds to new Pods what their networks require of the node: requests for devices that the
// author left out, and node affinity if only some nodes have a NIC. It rejects no Pod: podValidator does, also those that
// have too many terms for the affinity, and the node daemon if no replica answers.
type podMutator struct {
	checker network.PodChecker
	nodes   *nodeIndex
}

// Handle implements admission.Handler. It answers a dry run as any request, because it has no side effects, and
// changes nothing in a Pod that it has changed before.
func (h *podMutator) Handle(ctx context.Context, r admission.Request) admission.Response {
	var pod podTemplate
	if err := decodeJSON(r.Object.Raw, &pod); err != nil {
		return responseFor(fmt.Errorf("decode Pod %s/%s: %w", r.Namespace, r.Name, err))
	}
	template := pod.model(r.Namespace, nil)
	if template.Mirror {
		return admission.Allowed("")
	}
	if controllerOf(pod.Metadata.OwnerReferences) == nil {
		_, _ = checkTemplate(ctx, &h.checker, template, cacheDelay) // waits for networks that the cache does not have yet
	}
	needs := h.checker.Needs(template)
	patch := requestDevices(&pod, &template, needs.Pools)
	if needsAffinity(&pod) && template.AffinityTerms <= network.MaxAffinityTerms {
		patch = append(patch, requireNICs(pod.Spec.Affinity, h.nodes.nicsToRequire(needs.NICs))...)
	}
	return patched(patch)
}

// patchOperation is an operation of a JSON patch. A patch of single fields keeps those that this program does
// not know.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patched allows the request with a patch, which may be empty.
func patched(patch []patchOperation) admission.Response {
	response := admission.Allowed("")
	if len(patch) == 0 {
		return response
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return responseFor(fmt.Errorf("encode patch: %w", err))
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = text, &kind
	return response
}

// requestDevices returns a patch that requests the devices of each pool in the first container, unless the author
// has requested some of it: podValidator checks whether they are enough.
func requestDevices(pod *podTemplate, template *network.PodTemplate, pools []network.PoolNeed) []patchOperation {
	missing := map[string]string{}
	for _, need := range pools {
		if template.NeedsDeviceRequest(need.Pool) {
			missing[need.Pool] = strconv.Itoa(len(need.Networks))
		}
	}
	if len(missing) == 0 || len(pod.Spec.Containers) == 0 {
		return nil
	}
	const path = "/spec/containers/0/resources"
	resources := pod.Spec.Containers[0].Resources
	if resources == nil {
		return []patchOperation{{"add", path, map[string]any{"requests": missing, "limits": missing}}}
	}
	var patch []patchOperation
	for _, field := range []struct {
		path   string
		exists bool
	}{{path + "/requests", resources.Requests != nil}, {path + "/limits", resources.Limits != nil}} {
		if !field.exists {
			patch = append(patch, patchOperation{"add", field.path, missing})
			continue
		}
		for _, need := range pools {
			if count, ok := missing[need.Pool]; ok {
				patch = append(patch, patchOperation{"add", field.path + "/" + pointerToken(need.Pool), count})
			}
		}
	}
	return patch
}

// pointerToken returns a name as a part of a JSON pointer (RFC 6901).
func pointerToken(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// needsAffinity reports whether node affinity helps a Pod. The scheduler does not see a Pod
// with a nodeName, and kubelet ends one that does not match its node. Each Pod of a DaemonSet is for one node:
// without that node's NIC it would wait just the same, and without an error that names the NIC.
func needsAffinity(pod *podTemplate) bool {
	if _, optedOut := pod.Metadata.Annotations[v1.NodeAffinityAnnotation]; optedOut || pod.Spec.NodeName != "" {
		return false
	}
	selector := requiredSelector(pod.Spec.Affinity)
	return selector == nil || slices.ContainsFunc(selector.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return !isEmpty(t) && len(t.MatchFields) == 0
	})
}

// requiredSelector returns the required node affinity, of whose terms a node must match one; nil if there is none.
func requiredSelector(a *corev1.Affinity) *corev1.NodeSelector {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// isEmpty reports whether a term has no requirement. Such a term matches no node, and would match some with a
// requirement.
func isEmpty(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions)+len(t.MatchFields) == 0 }

// requireNICs returns a patch that adds the NICs to each term of the required node affinity that does not have
// them yet.
func requireNICs(a *corev1.Affinity, nics []string) []patchOperation {
	var required []corev1.NodeSelectorRequirement
	for _, nic := range nics {
		required = append(required, corev1.NodeSelectorRequirement{Key: v1.NICLabelPrefix + nic, Operator: corev1.NodeSelectorOpExists})
	}
	if len(required) == 0 {
		return nil
	}
	const path = "/spec/affinity"
	existing := requiredSelector(a)
	if existing == nil {
		selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: required}}}
		switch {
		case a == nil:
			return []patchOperation{{"add", path, map[string]any{"nodeAffinity": map[string]any{requiredTerms: selector}}}}
		case a.NodeAffinity == nil:
			return []patchOperation{{"add", path + "/nodeAffinity", map[string]any{requiredTerms: selector}}}
		}
		return []patchOperation{{"add", path + "/nodeAffinity/" + requiredTerms, selector}}
	}
	var patch []patchOperation
	for i, t := range existing.NodeSelectorTerms {
		if isEmpty(t) {
			continue
		}
		list := fmt.Sprintf("%s/nodeAffinity/%s/nodeSelectorTerms/%d/matchExpressions", path, requiredTerms, i)
		if t.MatchExpressions == nil {
			patch = append(patch, patchOperation{"add", list, required})
			continue
		}
		for _, r := range required {
			if !slices.ContainsFunc(t.MatchExpressions, func(has corev1.NodeSelectorRequirement) bool { return has.Key == r.Key && has.Operator == r.Operator }) {
				patch = append(patch, patchOperation{"add", list + "/-", r})
			}
		}
	}
	return patch
}

// requiredTerms is the field of the required node affinity.
const requiredTerms = "requiredDuringSchedulingIgnoredDuringExecution"
