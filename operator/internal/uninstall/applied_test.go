// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

// programPod returns a Pod of controller or agent, and its owner: a ReplicaSet, or what a name in the form kind/name says.
func programPod(program, owner string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: render.Namespace, Name: program + "-x", Labels: map[string]string{"app.kubernetes.io/name": program}}}
	pod.Spec.NodeName = "n1"
	if kind, name, ok := strings.Cut(owner, "/"); ok {
		isController := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &isController}}
	}
	return pod
}

// endingPod returns a Pod of the controller's or agent's ReplicaSet whose grace period has ended before a time.
func endingPod(program string, before time.Duration) corev1.Pod {
	pod := programPod(program, "ReplicaSet/rs")
	at := metav1.NewTime(time.Now().Add(-before))
	pod.DeletionTimestamp = &at
	return pod
}

// joinedAgent returns the Deployment of `kubectl patchbay cluster join`, which is so old.
func joinedAgent(age time.Duration) []metav1.PartialObjectMetadata {
	d := object("Deployment", "patchbay-agent", false)
	d.Namespace, d.CreationTimestamp = render.Namespace, metav1.NewTime(time.Now().Add(-age))
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-patchbay", Operation: metav1.ManagedFieldsOperationApply}}
	return []metav1.PartialObjectMetadata{d}
}

// Programs keep their rights while their Pods run. What the operator has not installed is not waited for: no program would end it.
func TestNextReadsPrograms(t *testing.T) {
	t.Parallel()
	const waiting, done = v1alpha1.ReasonRemovingPrograms, v1alpha1.ReasonUninstalled
	failed := programPod("patchbay-controller", "ReplicaSet/rs")
	failed.Status.Phase = corev1.PodFailed
	for name, tc := range map[string]struct {
		why             string
		objects         []metav1.PartialObjectMetadata
		pod             corev1.Pod
		reason, message string
	}{
		"Controller":         {"Kubernetes is about to delete it.", nil, programPod("patchbay-controller", "ReplicaSet/rs"), waiting, "Pods to end: patchbay-system/patchbay-controller-x of ReplicaSet rs. If a Pod stays"},
		"Agent":              {"So it is for the agent of the Installation.", nil, programPod("patchbay-agent", "ReplicaSet/rs"), waiting, "patchbay-system/patchbay-agent-x"},
		"Ending":             {"Its program still runs.", nil, endingPod("patchbay-controller", 0), waiting, "patchbay-controller-x"},
		"Overdue":            {"Its node is cut off.", nil, endingPod("patchbay-controller", time.Hour), done, "networks stay"},
		"Failed":             {"Its program has ended.", nil, failed, done, "networks stay"},
		"JoinedAgent":        {"Only `cluster leave` ends it.", joinedAgent(time.Hour), programPod("patchbay-agent", "ReplicaSet/rs"), done, "not applied stay: patchbay-system/patchbay-agent. To remove an agent of kubectl patchbay cluster join, run kubectl patchbay cluster leave"},
		"JoinedMeanwhile":    {"The Pod may be of the Deployment that the operator has deleted a moment ago.", joinedAgent(time.Second), programPod("patchbay-agent", "ReplicaSet/rs"), waiting, "patchbay-agent-x"},
		"EndingBesideJoined": {"The Pod may be of the Deployment that the operator has deleted.", joinedAgent(time.Hour), endingPod("patchbay-agent", 0), waiting, "patchbay-agent-x"},
		"ControllerOfOther":  {"The agent's Deployment says nothing about the controller.", joinedAgent(time.Hour), programPod("patchbay-controller", "ReplicaSet/rs"), waiting, "patchbay-controller-x"},
		"Copy":               {"kubectl debug copies the labels, and not the owner.", nil, programPod("patchbay-controller", ""), done, "Delete them if they run a program of Patchbay: patchbay-system/patchbay-controller-x on node n1"},
		"Mirror":             {"A stolen node creates mirror Pods with any label, whose owner is the Node.", nil, programPod("patchbay-agent", "Node/n1"), done, "Delete them if they run a program of Patchbay: patchbay-system/patchbay-agent-x on node n1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{objects: tc.objects, pods: []corev1.Pod{tc.pod}, nodes: []corev1.Node{node("n1", "1")}}
			if got := s.next(t); got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s\ngot  %s: %s\nwant %s: %s", tc.why, got.Reason, got.Message, tc.reason, tc.message)
			}
		})
	}
}

// The label and the fields of the operator are no proof: who creates an object chooses both.
func TestNextReadsAppliedObjects(t *testing.T) {
	t.Parallel()
	copied := appliedObject("ClusterRole", "", "patchbayd")
	copied.ManagedFields = nil
	kept := appliedObject("ClusterRole", "", "forged\x1b[2J")
	now := metav1.Now()
	kept.DeletionTimestamp, kept.Finalizers = &now, []string{"x.example/y"}
	const removing, done = v1alpha1.ReasonRemovingPrograms, v1alpha1.ReasonUninstalled
	for name, tc := range map[string]struct {
		why                      string
		object                   metav1.PartialObjectMetadata
		denied                   string
		reason, message, removed string
	}{
		"Own":             {"The operator has applied it.", appliedObject("ClusterRole", "", "patchbayd"), "", removing, "Removing rights", "patchbayd"},
		"LostRight":       {"Without the right to remove its own objects, the uninstallation must fail, and not leave them.", appliedObject("ClusterRole", "", "patchbayd"), "patchbayd", removing, "Removing rights", "patchbayd"},
		"AgentOfEarlier":  {"The part may have been disabled a moment ago.", appliedObject("ClusterRole", "", "patchbay-agent"), "patchbay-agent", removing, "Removing rights", "patchbay-agent"},
		"EarlierVersion":  {"The operator may remove what an earlier version has applied.", appliedObject("ClusterRole", "", "patchbay-old"), "", removing, "Removing rights", "patchbay-old"},
		"Copy":            {"A copy has the label only.", copied, "", done, "networks stay", ""},
		"Forged":          {"What sorts after it would stay for ever.", appliedObject("ClusterRole", "", "forged"), "forged", done, "may not delete, stay. Delete them if another version has applied them: ClusterRole forged", ""},
		"ForgedFinalizer": {"Its deletion never ends.", kept, kept.Name, done, "ClusterRole forged [2J has x.example/y", ""},
		"Tenant":          {"The admin of a namespace may create RoleBindings there.", appliedObject("RoleBinding", "shop", "patchbay-agent"), "", done, "networks stay", ""},
		"TenantRole":      {"And Roles.", appliedObject("Role", "shop", "patchbay-agent"), "", done, "networks stay", ""},
		"AgentSecrets":    {"There the agent has rights.", appliedObject("RoleBinding", "patchbay-agent-secrets", "patchbay-agent"), "", removing, "Removing bindings", "patchbay-agent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, f := installation(), &server{objects: []metav1.PartialObjectMetadata{tc.object}, denied: []string{tc.denied}}
			got, err := (&uninstall.Uninstaller{Client: f, Now: time.Now}).Next(t.Context(), i)
			removed := ""
			if len(got.Objects) > 0 {
				removed = got.Objects[0].Name
			}
			if (err != nil) != (tc.removed != "") { // the server executes no deletion
				t.Errorf("%s\ngot %v", tc.why, err)
			}
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) || removed != tc.removed {
				t.Errorf("%s\ngot  %s of %q: %s\nwant %s of %q: %s", tc.why, got.Reason, removed, got.Message, tc.reason, tc.removed, tc.message)
			}
		})
	}
}

// With the definitions, all their objects go. The message names those that do not, from the beginning.
func TestNextReadsDefinitions(t *testing.T) {
	t.Parallel()
	definition := func(name string) metav1.PartialObjectMetadata {
		d := appliedObject("CustomResourceDefinition", "", name)
		now := metav1.Now()
		d.DeletionTimestamp, d.Finalizers = &now, []string{"customresourcecleanup.apiextensions.k8s.io"}
		return d
	}
	network := func(finalizers ...string) metav1.PartialObjectMetadata {
		n := object("TenantNetwork", "x", false)
		n.Namespace, n.Finalizers = "shop", finalizers
		return n
	}
	const networks, records = "tenantnetworks.danm.io", "appliedworks.placement.patchbay.io"
	for name, tc := range map[string]struct {
		why     string
		server  server
		reason  string
		message string
	}{
		"Blocked":       {"A user must not search for it in all namespaces.", server{objects: []metav1.PartialObjectMetadata{definition(networks), network("x.example/y", metav1.FinalizerDeleteDependents)}}, v1alpha1.ReasonRemovingDefinitions, "keep objects of the definitions: TenantNetwork shop/x has x.example/y. If"},
		"BlockedBefore": {"The administrator can still keep the definitions.", server{daemonSets: []metav1.PartialObjectMetadata{runningDaemonSet()}, objects: []metav1.PartialObjectMetadata{definition(networks), network("x.example/y")}}, v1alpha1.ReasonRemovingNode, "TenantNetwork shop/x has x.example/y"},
		"Kubernetes":    {"Kubernetes removes its own finalizers.", server{objects: []metav1.PartialObjectMetadata{definition(networks), network(metav1.FinalizerDeleteDependents)}}, v1alpha1.ReasonRemovingDefinitions, "Removing the definitions CustomResourceDefinition " + networks},
		"JoinedAgent":   {"Without its records, an agent that stays could not remove what its hub has placed.", server{objects: append(joinedAgent(time.Hour), definition(records))}, v1alpha1.ReasonUninstalled, "cluster leave"},
		"NoAgent":       {"No program needs the records.", server{objects: []metav1.PartialObjectMetadata{definition(records)}}, v1alpha1.ReasonRemovingDefinitions, records},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := installation()
			i.Annotations = map[string]string{v1alpha1.RemoveDefinitionsAnnotation: "true"}
			// A step that writes fails, because the server accepts none: its message counts all the same.
			got, _ := (&uninstall.Uninstaller{Client: &patches{&tc.server}, Now: time.Now}).Next(t.Context(), i)
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s\ngot  %s: %s\nwant %s: %s", tc.why, got.Reason, got.Message, tc.reason, tc.message)
			}
			if blocked := strings.Contains(got.Message, "Finalizers of other programs"); blocked != strings.HasPrefix(name, "Blocked") {
				t.Errorf("%s\ngot the note about finalizers %v: %s", tc.why, blocked, got.Message)
			}
		})
	}
}

// A tenant must not push the step, and what to do, out of the message.
func TestNextBoundsBlockingObjects(t *testing.T) {
	t.Parallel()
	definition := appliedObject("CustomResourceDefinition", "", "tenantnetworks.danm.io")
	now := metav1.Now()
	definition.DeletionTimestamp = &now
	s := &server{objects: []metav1.PartialObjectMetadata{definition}}
	for range 6 {
		n := object("TenantNetwork", strings.Repeat("a", 253), false)
		n.Namespace, n.Finalizers = "shop", []string{strings.Repeat("b", 253) + "/c", "d"}
		s.objects = append(s.objects, n)
	}
	i := installation()
	i.Annotations = map[string]string{v1alpha1.RemoveDefinitionsAnnotation: "true"}
	got, err := (&uninstall.Uninstaller{Client: s, Now: time.Now}).Next(t.Context(), i)
	if err != nil || len(got.Message) > 1500 || !strings.Contains(got.Message, " and 1 more. If such a program") {
		t.Errorf("got %v, %d bytes, want a short message with what to do: %s", err, len(got.Message), got.Message)
	}
}

// patches is a server that accepts patches and ignores them.
type patches struct{ *server }

// Patch implements client.Writer.
func (*patches) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}
