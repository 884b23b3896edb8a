// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

// object returns the metadata of an object.
func object(kind, name string, ending bool) metav1.PartialObjectMetadata {
	o := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: kind}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	if ending {
		now := metav1.Now()
		o.DeletionTimestamp = &now
	}
	return o
}

// blocked returns the metadata of an object whose deletion waits for a finalizer.
func blocked(kind, namespace, name string) metav1.PartialObjectMetadata {
	o := object(kind, name, true)
	o.Namespace, o.Finalizers = namespace, []string{"x.example/y"}
	return o
}

func daemonSet(requested, ending bool) *uninstall.DaemonSet {
	return &uninstall.DaemonSet{PartialObjectMetadata: object("DaemonSet", "patchbayd", ending), Requested: requested}
}

// foreground returns a DaemonSet whose deletion waits for its Pods.
func foreground() *uninstall.DaemonSet {
	ds := daemonSet(true, true)
	ds.Finalizers = []string{metav1.FinalizerDeleteDependents}
	return ds
}

func attachment(pod string, exists bool) attachments.Attachment {
	return attachments.Attachment{Pod: pod, Node: "n1", Network: "ClusterNetwork/default", PodExists: exists, HasFinalizer: true}
}

// nextCase is what is known, and the step that follows.
type nextCase struct {
	why     string
	facts   uninstall.Facts
	action  uninstall.Action
	reason  string
	message string
	// objects are the names that the action is for.
	objects string
}

// nextCases are in the order of the stages.
func nextCases() map[string]nextCase {
	web := []attachments.Attachment{attachment("shop/web", true)}
	gone := []attachments.Attachment{attachment("shop/web", false)}
	return map[string]nextCase{
		"Attached":             {"A Pod would lose its network.", uninstall.Facts{DaemonSet: daemonSet(false, false), Attached: web}, uninstall.Wait, v1alpha1.ReasonPodsAttached, "1 Pods are attached to networks: shop/web on node n1 (ClusterNetwork/default). Delete them, or uninstall with --force", ""},
		"AttachedRequested":    {"A Pod came between the annotation and the deletion.", uninstall.Facts{DaemonSet: daemonSet(true, false), Attached: web}, uninstall.Wait, v1alpha1.ReasonPodsAttached, "shop/web", ""},
		"AttachedForced":       {"Force lets Pods keep their interfaces.", uninstall.Facts{Force: true, DaemonSet: daemonSet(false, false), Attached: web}, uninstall.RequestCleanUp, v1alpha1.ReasonRemovingNode, "", ""},
		"Detaching":            {"Only the node's daemon knows when the interface is gone.", uninstall.Facts{DaemonSet: daemonSet(false, false), Attached: gone}, uninstall.Wait, v1alpha1.ReasonDetachingPods, "shop/web on node n1 (ClusterNetwork/default). If a node does not run any more, delete its Node, or uninstall with --force", ""},
		"DetachingForced":      {"Its node may be off.", uninstall.Facts{Force: true, DaemonSet: daemonSet(false, false), Attached: gone}, uninstall.RequestCleanUp, v1alpha1.ReasonRemovingNode, "", ""},
		"WithoutDanmEp":        {"Only the node knows of the Pod.", uninstall.Facts{DaemonSet: daemonSet(false, false), Nodes: []uninstall.Node{{Name: "n1", Ready: true, Running: true, WithoutDanmEp: "1 Pods are attached and have no DanmEp: shop/db"}, {Name: "n2", Ready: true, Running: true}}}, uninstall.Wait, v1alpha1.ReasonPodsAttached, "without a DanmEp on 1 nodes: n1: 1 Pods are attached and have no DanmEp: shop/db. Delete them, or uninstall with --force: then they keep their interfaces. If a node does not report any more, delete its Node or its NodeNetwork", ""},
		"WithoutDanmEpForced":  {"Force lets Pods keep their interfaces.", uninstall.Facts{Force: true, DaemonSet: daemonSet(false, false), Nodes: []uninstall.Node{{Name: "n1", Running: true, WithoutDanmEp: "1 Pods"}}}, uninstall.RequestCleanUp, v1alpha1.ReasonRemovingNode, "", ""},
		"WithoutDanmEpKept":    {"No program reports the Pod once the daemon is gone, and its address would be given again.", uninstall.Facts{Force: true, RemoveDefinitions: true, DaemonSet: daemonSet(true, false), Nodes: []uninstall.Node{{Name: "n1", Ready: true, Running: true, WithoutDanmEp: "1 Pods: shop/db"}}}, uninstall.Wait, v1alpha1.ReasonPodsAttached, "on 1 nodes: n1: 1 Pods: shop/db. Delete them, or remove the annotation " + v1alpha1.RemoveDefinitionsAnnotation, ""},
		"WithDanmEpsForced":    {"A DanmEp keeps the address until the definitions go.", uninstall.Facts{Force: true, RemoveDefinitions: true, DaemonSet: daemonSet(false, false), Attached: web}, uninstall.RequestCleanUp, v1alpha1.ReasonRemovingNode, "", ""},
		"Foreign":              {"The DaemonSet's deletion does not delete a copy of the daemon's Pod.", uninstall.Facts{Foreign: []string{"patchbayd-x-debug on node n1"}}, uninstall.Finish, v1alpha1.ReasonUninstalled, ". Pods that neither the DaemonSet patchbayd nor a ReplicaSet owns are not waited for. Delete them if they run a program of Patchbay: patchbayd-x-debug on node n1", ""},
		"JoinedAgent":          {"The agent of a hub works without the other programs.", uninstall.Facts{Others: []string{"patchbay-system/patchbay-agent"}}, uninstall.Finish, v1alpha1.ReasonUninstalled, ". Deployments that the operator has not applied stay: patchbay-system/patchbay-agent. To remove an agent of kubectl patchbay cluster join, run kubectl patchbay cluster leave", ""},
		"Denied":               {"A forged object must not stop what follows, and one of a newer version must not be forgotten.", uninstall.Facts{Denied: []string{"ClusterRole x"}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "may not delete, stay. Delete them if another version has applied them: ClusterRole x", ""},
		"Request":              {"A daemon whose DaemonSet is not annotated removes no links.", uninstall.Facts{DaemonSet: daemonSet(false, false)}, uninstall.RequestCleanUp, v1alpha1.ReasonRemovingNode, "told to clean up", ""},
		"DeleteDaemonSet":      {"The annotation is there.", uninstall.Facts{DaemonSet: daemonSet(true, false)}, uninstall.Delete, v1alpha1.ReasonRemovingNode, "", "patchbayd"},
		"DaemonRuns":           {"It has not finished.", uninstall.Facts{DaemonSet: daemonSet(true, true), Nodes: []uninstall.Node{{Name: "n1", Ready: true, Running: true}, {Name: "n2", CleanedUp: true}}}, uninstall.Wait, v1alpha1.ReasonRemovingNode, "on 1 nodes: n1", ""},
		"NodeNotReady":         {"Its daemon may still run.", uninstall.Facts{DaemonSet: daemonSet(true, true), Nodes: []uninstall.Node{{Name: "n1", Running: true, Overdue: true}}}, uninstall.Wait, v1alpha1.ReasonRemovingNode, "n1 (NotReady)", ""},
		"ReadyForced":          {"Force waits for a daemon that is about to finish.", uninstall.Facts{Force: true, DaemonSet: daemonSet(true, true), Nodes: []uninstall.Node{{Name: "n1", Ready: true, Running: true}}}, uninstall.Wait, v1alpha1.ReasonRemovingNode, "n1", ""},
		"NotReadyForced":       {"A later installation could start no daemon, because the DaemonSet waits for this node.", uninstall.Facts{Force: true, DaemonSet: foreground(), Nodes: []uninstall.Node{{Name: "n1", Running: true}}}, uninstall.Delete, v1alpha1.ReasonRemovingNode, "before its last Pods", "patchbayd"},
		"NotReadyLeft":         {"Force goes on without it, and says so.", uninstall.Facts{Force: true, Nodes: []uninstall.Node{{Name: "n1", Running: true}}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "may stay on nodes that have not reported: n1 (NotReady)", ""},
		"OverdueForced":        {"The Pod does not end.", uninstall.Facts{Force: true, Nodes: []uninstall.Node{{Name: "n1", Ready: true, Running: true, Overdue: true}}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "not reported: n1", ""},
		"DaemonSetEnding":      {"Kubernetes deletes it after its Pods.", uninstall.Facts{DaemonSet: foreground()}, uninstall.Wait, v1alpha1.ReasonRemovingNode, "Waiting for Kubernetes", ""},
		"DaemonSetStays":       {"It has a finalizer of another program.", uninstall.Facts{Force: true, DaemonSet: daemonSet(true, true)}, uninstall.Wait, v1alpha1.ReasonRemovingNode, "Waiting for Kubernetes", ""},
		"NoReport":             {"A daemon that was killed has cleaned nothing up.", uninstall.Facts{Nodes: []uninstall.Node{{Name: "n1", Ready: true}, {Name: "n2", CleanedUp: true}}}, uninstall.Wait, v1alpha1.ReasonNodesNotCleanedUp, "1 of 2 nodes have not reported that they are cleaned up: n1.", ""},
		"BadReport":            {"The node's error is shown.", uninstall.Facts{Nodes: []uninstall.Node{{Name: "n1", Ready: true, Message: "remove file: read-only"}}}, uninstall.Wait, v1alpha1.ReasonNodesNotCleanedUp, "n1: remove file: read-only", ""},
		"AttachedMeanwhile":    {"No daemon is left to detach the Pod; its deletion is enough.", uninstall.Facts{Attached: web}, uninstall.Wait, v1alpha1.ReasonPodsAttached, "attached meanwhile: shop/web", ""},
		"NamespaceEnding":      {"Cluster-scoped objects do not go with it.", uninstall.Facts{NamespaceEnding: true, Programs: []uninstall.Group{{Name: "policies", Objects: []metav1.PartialObjectMetadata{object("x", "p", false)}}}}, uninstall.Delete, v1alpha1.ReasonRemovingPrograms, "Removing policies", "p"},
		"NamespaceBlocked":     {"The namespace waits for the finalizer of a DanmEp.", uninstall.Facts{NamespaceEnding: true, Attached: gone}, uninstall.RemoveFinalizers, v1alpha1.ReasonRemovingFinalizers, "1 DanmEps", ""},
		"NamespaceLast":        {"Its objects are gone soon.", uninstall.Facts{NamespaceEnding: true}, uninstall.Wait, v1alpha1.ReasonRemovingPrograms, "namespace patchbay-system", ""},
		"FirstGroup":           {"Webhooks go before the controller, which answers them.", uninstall.Facts{Programs: []uninstall.Group{{Name: "webhooks", Objects: []metav1.PartialObjectMetadata{object("x", "w", false)}}, {Name: "controller", Objects: []metav1.PartialObjectMetadata{object("x", "c", false)}}}}, uninstall.Delete, v1alpha1.ReasonRemovingPrograms, "Removing webhooks", "w"},
		"ProgramStops":         {"A controller that still runs could add a finalizer.", uninstall.Facts{ProgramPods: []string{"patchbay-system/x of ReplicaSet y"}, Programs: []uninstall.Group{{Name: "controller", StopsPrograms: true}, {Name: "rights", Objects: []metav1.PartialObjectMetadata{object("x", "r", false)}}}}, uninstall.Wait, v1alpha1.ReasonRemovingPrograms, "Waiting for Pods to end: patchbay-system/x of ReplicaSet y. If a Pod stays, its ReplicaSet has lost its Deployment: delete the ReplicaSet", ""},
		"GroupEnding":          {"Kubernetes deletes it in a moment.", uninstall.Facts{Programs: []uninstall.Group{{Name: "rights", Ending: []metav1.PartialObjectMetadata{object("ClusterRole", "r\x1b", true)}}}}, uninstall.Wait, v1alpha1.ReasonRemovingPrograms, "deletion of rights: ClusterRole r ", ""},
		"GroupBlocked":         {"The administrator needs the namespace to find the object, and the finalizer to find its program.", uninstall.Facts{Programs: []uninstall.Group{{Name: "rights", Ending: []metav1.PartialObjectMetadata{blocked("Role", "patchbay-system", "r")}}}}, uninstall.Wait, v1alpha1.ReasonRemovingPrograms, "deletion of rights: Role patchbay-system/r has x.example/y. If the program of a finalizer does not run any more, remove the finalizer with kubectl edit", ""},
		"Finalizers":           {"No other program removes them.", uninstall.Facts{Attached: gone, Protected: []metav1.PartialObjectMetadata{object("ClusterNetwork", "a", false)}}, uninstall.RemoveFinalizers, v1alpha1.ReasonRemovingFinalizers, "1 networks and 1 DanmEps", "a"},
		"FinalizersForced":     {"A namespace with a DanmEp could not be deleted.", uninstall.Facts{Force: true, Attached: web}, uninstall.RemoveFinalizers, v1alpha1.ReasonRemovingFinalizers, "0 networks and 1 DanmEps", ""},
		"DANM":                 {"A DanmEp without the finalizer is not Patchbay's.", uninstall.Facts{Attached: []attachments.Attachment{{Pod: "shop/web", Node: "n1"}}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "Patchbay is removed", ""},
		"MayStillRun":          {"The last message names whose addresses stay.", uninstall.Facts{Attached: []attachments.Attachment{{Pod: "shop/web", Node: "n1"}}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "The DanmEps of 1 Pods that are gone keep their addresses, because no node has reported that their containers have ended: shop/web on node n1", ""},
		"Reports":              {"A later uninstallation would wait for these nodes.", uninstall.Facts{Nodes: []uninstall.Node{{Name: "n1", CleanedUp: true, Message: v1alpha1.CleanUpComplete}}, Reports: []metav1.PartialObjectMetadata{object("NodeNetwork", "n1", false)}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "networks stay", "n1"},
		"ReportsOfPeers":       {"A daemon that is cut off would drop its tunnels to them.", uninstall.Facts{Force: true, Nodes: []uninstall.Node{{Name: "n2", Running: true}}, Reports: []metav1.PartialObjectMetadata{object("NodeNetwork", "n1", false)}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "n2 (NotReady)", ""},
		"NodeKeeps":            {"The report is the only place that names what is left there.", uninstall.Facts{Nodes: []uninstall.Node{{Name: "n1", CleanedUp: true, Message: "link a.5 kept"}, {Name: "n2", CleanedUp: true, Message: v1alpha1.CleanUpComplete}}}, uninstall.Finish, v1alpha1.ReasonUninstalled, ". Left on nodes that have reported: n1: link a.5 kept", ""},
		"KeepDefinitions":      {"Networks are the users'.", uninstall.Facts{Definitions: []metav1.PartialObjectMetadata{object("CRD", "c", false)}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "networks stay", ""},
		"Definitions":          {"They were requested.", uninstall.Facts{RemoveDefinitions: true, Definitions: []metav1.PartialObjectMetadata{object("CRD", "c", false), object("CRD", "d", true)}}, uninstall.Delete, v1alpha1.ReasonRemovingDefinitions, "CRD c, CRD d", "c"},
		"DefinitionsUnderPods": {"A network that is made again would give the Pod's address to another.", uninstall.Facts{Force: true, RemoveDefinitions: true, Attached: []attachments.Attachment{{Pod: "shop/web", Node: "n1", PodExists: true}}, Definitions: []metav1.PartialObjectMetadata{object("CRD", "c", false)}}, uninstall.Wait, v1alpha1.ReasonPodsAttached, "The definitions stay while 1 Pods keep their interfaces: shop/web", ""},
		"DefinitionsUnknown":   {"Only the last report of the node names the Pod.", uninstall.Facts{RemoveDefinitions: true, Nodes: []uninstall.Node{{Name: "n1", Ready: true, CleanedUp: true, UnderPods: true, Message: "1 sandboxes keep their interfaces: shop/db"}}, Definitions: []metav1.PartialObjectMetadata{object("CRD", "c", false)}}, uninstall.Wait, v1alpha1.ReasonPodsAttached, "on 1 nodes when the node daemon ended: n1: 1 sandboxes keep their interfaces: shop/db. Networks that are made again would give their addresses to others. Delete these Pods, and then the NodeNetworks of the nodes", ""},
		"KeepUnknown":          {"Networks that stay keep the address.", uninstall.Facts{Nodes: []uninstall.Node{{Name: "n1", Ready: true, CleanedUp: true, UnderPods: true, Message: "1 sandboxes"}}, Definitions: []metav1.PartialObjectMetadata{object("CRD", "c", false)}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "networks stay", ""},
		"DefinitionsEnding":    {"Kubernetes deletes their objects.", uninstall.Facts{RemoveDefinitions: true, Definitions: []metav1.PartialObjectMetadata{object("CRD", "d", true)}}, uninstall.Wait, v1alpha1.ReasonRemovingDefinitions, "CRD d", ""},
		"DefinitionBlocked":    {"The administrator needs its name to find the object in all namespaces.", uninstall.Facts{RemoveDefinitions: true, Definitions: []metav1.PartialObjectMetadata{object("CRD", "d", true)}, Blocking: []string{"TenantNetwork shop/x has x.example/y"}}, uninstall.Wait, v1alpha1.ReasonRemovingDefinitions, "CRD d. Finalizers of other programs keep objects of the definitions: TenantNetwork shop/x has x.example/y. If such a program does not run any more, remove its finalizer with kubectl edit", ""},
		"BlockedBefore":        {"A tenant that sets its finalizer again and again must not stop the uninstallation, and the administrator can still keep the definitions.", uninstall.Facts{RemoveDefinitions: true, DaemonSet: daemonSet(false, false), Blocking: []string{"TenantNetwork shop/x has x.example/y"}}, uninstall.RequestCleanUp, v1alpha1.ReasonRemovingNode, "TenantNetwork shop/x has x.example/y", ""},
		"Nothing":              {"All is removed.", uninstall.Facts{}, uninstall.Finish, v1alpha1.ReasonUninstalled, "Patchbay is removed", ""},
		"StillAttached":        {"The last message names the Pods that keep interfaces.", uninstall.Facts{Force: true, Attached: []attachments.Attachment{{Pod: "shop/web", Node: "n1", PodExists: true}}}, uninstall.Finish, v1alpha1.ReasonUninstalled, "1 Pods keep their interfaces: shop/web", ""},
		"AnotherInstallation":  {"Its Pods, networks and rights are not ours.", uninstall.Facts{Another: "it is elsewhere", Attached: web, Protected: []metav1.PartialObjectMetadata{object("ClusterNetwork", "a", false)}}, uninstall.Finish, v1alpha1.ReasonAnotherInstallation, "Nothing is removed, because another installation runs: it is elsewhere", ""},
		"IgnoredAnnotation":    {"A typing error must not look like force.", uninstall.Facts{Ignored: []string{"Annotation x: must be true"}, DaemonSet: daemonSet(false, false), Attached: web}, uninstall.Wait, v1alpha1.ReasonPodsAttached, ". Annotation x: must be true", ""},
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	for name, tc := range nextCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := uninstall.Next(&tc.facts)
			var objects []string
			for i := range got.Objects {
				objects = append(objects, got.Objects[i].Name)
			}
			if got.Action != tc.action || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) || strings.Join(objects, " ") != tc.objects {
				t.Errorf("%s\ngot  %s, %s, %v: %s\nwant %s, %s, %s: %s", tc.why, got.Action, got.Reason, objects, got.Message, tc.action, tc.reason, tc.objects, tc.message)
			}
			if got.Foreground != (name == "DeleteDaemonSet") {
				t.Errorf("Foreground is %v: only the DaemonSet must stay, until its daemons have read it", got.Foreground)
			}
		})
	}
}

// A DanmEp without a Pod covers the address of a container that may still run. Only a node that is cleaned up, or that is
// no more, proves that it does not.
func TestNextKeepsDanmEpsOfContainersThatMayRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		why       string
		podExists bool
		stopped   bool
		isDeleted bool
	}{
		"Attached":       {"The Pod keeps its interface.", true, true, false},
		"NodeUnknown":    {"The node is cut off, and its containers run.", false, false, false},
		"NodeHasStopped": {"Nothing needs the address.", false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &uninstall.Facts{Force: true, Attached: []attachments.Attachment{attachment("shop/web", tc.podExists)}, Stopped: map[string]bool{"n1": tc.stopped}}
			got := uninstall.Next(f)
			if got.Action != uninstall.RemoveFinalizers || len(got.Orphans) == 1 != tc.isDeleted || len(got.DanmEps) == 1 == tc.isDeleted {
				t.Errorf("%s\ngot %s of %v, deletion of %v, want deletion %v", tc.why, got.Action, got.DanmEps, got.Orphans, tc.isDeleted)
			}
		})
	}
}
