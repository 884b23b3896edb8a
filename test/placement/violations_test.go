// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// scenario makes writes, one second after the other, of the Deployment ns/web and what is
// said of it at the hub.
type scenario struct {
	t   *testing.T
	all []write

	elapsed time.Duration // so far
}

func (h *scenario) add(cluster, user, verb, group, resource, body string) *write {
	h.t.Helper()
	o := unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(body))
	if err == nil {
		err = utiljson.Unmarshal(raw, &o.Object)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	at := time.Unix(int64(len(h.all)), 0).Add(h.elapsed)
	h.all = append(h.all, write{cluster, bed.Write{
		Time: at, User: user, Verb: verb, Group: group, Resource: resource,
		Namespace: "ns", Name: "web", Object: o, URI: "/",
	}})
	return &h.all[len(h.all)-1]
}

// advance lets so much time pass that nobody acts on what was said before.
func (h *scenario) advance() *scenario {
	h.elapsed += 2 * cacheLag
	return h
}

// decision is an Assignment: the decision's number, and the state in east.
func (h *scenario) decision(number, state string) *scenario {
	h.add("", bed.HubUser, "update", "placement.patchbay.io", "assignments",
		`{metadata: {uid: a}, spec: {object: {group: apps, kind: Deployment, resource: deployments, namespace: ns, name: web}, decision: {number: `+
			number+`}, targets: [{cluster: east, state: `+state+`}]}}`)
	return h
}

// amendDecision changes the last decision: its source, and the further clusters where the object is to run.
func (h *scenario) amendDecision(source, policy string, clusters ...any) *scenario {
	object := h.all[len(h.all)-1].Object.Object
	targets, _, err := unstructured.NestedSlice(object, "spec", "targets")
	for _, one := range clusters {
		targets = append(targets, map[string]any{"cluster": one, "state": "Active"})
	}
	err = errors.Join(err,
		unstructured.SetNestedField(object, source, "spec", "decision", "source"),
		unstructured.SetNestedField(object, policy, "spec", "decision", "policyUID"),
		unstructured.SetNestedSlice(object, targets, "spec", "targets"))
	if err != nil {
		h.t.Fatal(err)
	}
	return h
}

// orderRemoval is a Work in east that orders the removal of what was made from source s.
func (h *scenario) orderRemoval() *scenario {
	h.add("", bed.HubUser, "update", "placement.patchbay.io", "works",
		`{spec: {removal: {policy: Delete, sourceUID: s}, manifests: [{resource: deployments, object: {apiVersion: apps/v1, metadata: {namespace: ns, name: web}}}]}}`).
		Namespace = "cluster-east"
	return h
}

// placed is decide by the Placement ns/p. With clusters, the object is to run there, too.
func (h *scenario) placed(number, state string, clusters ...any) *scenario {
	return h.decision(number, state).amendDecision("Placement ns/p", "p", clusters...)
}

// annotated is decide by the annotation.
func (h *scenario) annotated(number, state string, clusters ...any) *scenario {
	return h.decision(number, state).amendDecision("annotation", "", clusters...)
}

// annotate is the Deployment of two replicas at the hub with an annotation.
func (h *scenario) annotate(user, clusters string) *scenario {
	h.add("", user, "update", "apps", "deployments",
		`{metadata: {annotations: {placement.patchbay.io/clusters: "`+clusters+`"}}, spec: {replicas: 2}}`)
	return h
}

// writeCluster is the Cluster east as a person writes it.
func (h *scenario) writeCluster(verb, body string) *scenario {
	h.add("", "other-user", verb, "placement.patchbay.io", "clusters", body).Name = "east"
	return h
}

// inBothClusters is the Deployment with replicas, in east and west by the Placement ns/p, which may say more.
func (h *scenario) inBothClusters(replicas, more string) *scenario {
	return h.writeCluster("create", `{metadata: {labels: {zone: a}}, spec: {accepted: true}}`).
		policy("create", "{clusters: {names: [east, west]"+more+"}").hubDeployment(replicas).placed("1", "Active", "west").advance()
}

// dependent is the Assignment of the Deployment front in a cluster, which takes something along. That
// it is on its way out of there is enough for it to need that.
func (h *scenario) dependent(user, verb, cluster, takes string) *scenario {
	h.add("", user, verb, "placement.patchbay.io", "assignments",
		`{metadata: {uid: l}, spec: {object: {group: apps, kind: Deployment, resource: deployments, namespace: ns, name: front},
targets: [{cluster: `+cluster+`, state: Draining}], dependencies: [{group: apps, kind: Deployment, name: `+takes+`}]}}`).Name = "front"
	return h
}

// followedDecision is decide by what takes the object along.
func (h *scenario) followedDecision(number, state string) *scenario {
	return h.decision(number, state).amendDecision("dependency", "")
}

// policy is a write of the Placement ns/p by a person.
func (h *scenario) policy(verb, spec string) *scenario {
	body := `{}`
	if verb != "delete" {
		body = `{metadata: {uid: p}, spec: ` + spec + `}`
	}
	h.add("", "other-user", verb, "placement.patchbay.io", "placements", body).Name = "p"
	return h
}

// clusterDeployment is the Deployment in a cluster: who wrote it, replicas asked and available.
func (h *scenario) clusterDeployment(cluster, user, uid, asked, available string) *write {
	return h.add(cluster, user, "patch", "apps", "deployments",
		`{metadata: {uid: `+uid+`, annotations: {placement.patchbay.io/source-uid: s}}, spec: {replicas: `+asked+`}, status: {availableReplicas: `+available+`}}`)
}

// reportAvailable is the Deployment in east at a resourceVersion, whose availableReplicas are
// somebody's.
func (h *scenario) reportAvailable(user, version, available string) *scenario {
	w := h.clusterDeployment("east", user, "u", "2", available)
	w.Object.SetResourceVersion(version)
	w.Object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "other-user", FieldsV1: metav1.NewFieldsV1(`{"f:status": {"f:availableReplicas": {}}}`),
	}})
	return h
}

// daemonSet is our write of the DaemonSet in east, of which a manager has said how many are
// ready.
func (h *scenario) daemonSet(manager, ready string) *scenario {
	w := h.add("east", bed.AgentUser, "patch", "apps", "daemonsets", `{metadata: {uid: d}, status: {numberReady: `+ready+`}}`)
	w.Object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:status": {"f:numberReady": {}}}`),
	}})
	return h
}

func (h *scenario) create(uid string) *scenario {
	h.clusterDeployment("east", bed.AgentUser, uid, "2", "0").Created = true
	return h
}

func (h *scenario) remove(user, uid string) *scenario {
	h.add("east", user, "delete", "apps", "deployments", `{}`).Precondition = types.UID(uid)
	return h
}

// autoscaled is a move of the Deployment of two replicas from east, where an autoscaler runs 8, to west, where so
// many are available when east loses all.
func (h *scenario) autoscaled(available string) *scenario {
	h.annotate("other-user", "east").annotated("1", "Active")
	h.add("", bed.HubUser, "create", "placement.patchbay.io", "works",
		`{spec: {source: {group: apps, kind: Deployment, resource: deployments, namespace: ns, name: web}, apply: {yield: [spec.replicas]}}}`)
	h.clusterDeployment("east", bed.AgentUser, "u", "2", "2")
	h.clusterDeployment("east", "hpa", "u", "8", "8")
	h.annotate("other-user", "west").annotated("2", "Draining", "west")
	h.clusterDeployment("west", bed.AgentUser, "w", "8", available)
	h.clusterDeployment("east", bed.AgentUser, "u", "0", "8")
	return h
}

// deleteAtHub is a person's order to remove the Deployment everywhere.
func (h *scenario) deleteAtHub() *scenario {
	h.add("", "other-user", "delete", "apps", "deployments", `{}`)
	return h
}

// hubDeployment is the Deployment at the hub.
func (h *scenario) hubDeployment(replicas string) *scenario {
	h.add("", "other-user", "update", "apps", "deployments", `{spec: {replicas: `+replicas+`}}`)
	return h
}

// What the watcher lets pass, and what not: it must not be blind.
func TestCheckerFindsViolations(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		write  func(*scenario)
		want   string
	}{
		"Life": {"Made, ordered to go, gone.", func(h *scenario) {
			h.decision("1", "Active").create("u").deleteAtHub().decision("2", "Removing").orderRemoval().remove(bed.AgentUser, "u")
		}, ""},
		"NoOrder": {"Nobody said so.", func(h *scenario) {
			h.decision("1", "Active").create("u").deleteAtHub().decision("2", "Removing").remove(bed.AgentUser, "u")
		}, "I2"},
		"OtherUID": {"The order was for another object.", func(h *scenario) {
			h.decision("1", "Active").create("u").deleteAtHub().decision("2", "Removing").orderRemoval().remove(bed.AgentUser, "v")
		}, "I2"},
		"Twice":      {"One creation for a decision.", func(h *scenario) { h.decision("1", "Active").create("u").create("v") }, "I3"},
		"Repaired":   {"Somebody deleted it.", func(h *scenario) { h.decision("1", "Active").create("u").remove("other-user", "u").create("v") }, ""},
		"Undecided":  {"It is not wanted there.", func(h *scenario) { h.create("u") }, "I3"},
		"SameNumber": {"What is wanted changes by a decision.", func(h *scenario) { h.decision("1", "Active").deleteAtHub().decision("1", "Removing") }, "I3"},
		"Moved": {"The policy has other clusters now.", func(h *scenario) {
			h.inBothClusters("2", "}").policy("update", "{clusters: {names: [west]}}").placed("2", "Removing", "west")
		}, ""},
		"NotMoved": {"The policy has this cluster still.", func(h *scenario) {
			h.inBothClusters("2", "}").policy("update", "{clusters: {names: [west, east]}}").placed("2", "Removing", "west")
		}, "I6"},
		"SelectsNone": {"A policy without clusters leaves what is there.", func(h *scenario) {
			h.inBothClusters("2", "}").policy("update", "{}").placed("2", "Removing", "west")
		}, "I6"},
		"UnknownPolicy": {"Nobody has made it.", func(h *scenario) { h.placed("1", "Active", "west").placed("2", "Removing", "west") }, "I6"},
		"ShareOfZero": {"One replica, two clusters.", func(h *scenario) {
			h.inBothClusters("2", "}").hubDeployment("1").placed("2", "Removing", "west")
		}, ""},
		"ShareOfOne": {"A kind that is not divided is in both.", func(h *scenario) {
			h.inBothClusters("2", "}, replicas: {mode: Duplicate}").hubDeployment("1").placed("2", "Removing", "west")
		}, "I6"},
		"Light": {"Its weight is too small for a replica.", func(h *scenario) {
			h.inBothClusters("4", "}").policy("update", "{clusters: {names: [east, west]}, replicas: {weights: {east: 1, west: 9}}}").placed("2", "Removing", "west")
		}, ""},
		"Heavy": {"It is not.", func(h *scenario) {
			h.inBothClusters("4", "}").policy("update", "{clusters: {names: [east, west]}, replicas: {weights: {east: 1, west: 3}}}").placed("2", "Removing", "west")
		}, "I6"},
		"Scaled": {"A person scales by the subresource.", func(h *scenario) {
			h.inBothClusters("2", "}").add("", "other-user", "patch", "apps", "deployments", `{spec: {replicas: 1}}`).Subresource = "scale"
			h.placed("2", "Removing", "west")
		}, ""},
		"Fewer": {"The policy wants one of both now.", func(h *scenario) {
			h.inBothClusters("2", "}").policy("update", "{clusters: {names: [east, west], count: 1}}").placed("2", "Removing", "west")
		}, ""},
		"FewerBefore": {"It did already.", func(h *scenario) {
			h.inBothClusters("2", ", count: 1}").placed("2", "Removing", "west")
		}, "I6"},
		"Drained": {"A person empties the cluster.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {drain: {mode: Move}}}`).placed("2", "Removing", "west")
		}, ""},
		"DrainedOther": {"This one is another.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {drain: {mode: Move}}}`)
			h.all[len(h.all)-1].Name = "west"
			h.placed("2", "Removing", "west")
		}, "I6"},
		"DrainedBefore": {"It was taken back, and that is known.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {drain: {mode: Move}}}`).writeCluster("update", `{spec: {}}`).advance().placed("2", "Removing", "west")
		}, "I6"},
		"DrainedLately": {"It was taken back, and the hub may not know yet.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {drain: {mode: Move}}}`).writeCluster("update", `{spec: {}}`).placed("2", "Removing", "west")
		}, ""},
		"DrainOff": {"That drains nothing.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {drain: {mode: "Off"}}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Tainted": {"It does not tolerate the taint.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {taints: [{key: a, effect: NoExecute}]}}`).placed("2", "Removing", "west")
		}, ""},
		"Tolerated": {"It does.", func(h *scenario) {
			h.inBothClusters("2", ", tolerations: [{key: a}]}").writeCluster("update", `{spec: {taints: [{key: a, effect: NoExecute}]}}`).placed("2", "Removing", "west")
		}, "I6"},
		"TaintedForNew": {"What is there stays.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {unschedulable: true, taints: [{key: a, effect: NoSchedule}]}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Limited": {"There is no room for a replica any more.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {limits: {pods: 0}}}`).placed("2", "Removing", "west")
		}, ""},
		"LimitedWhole": {"What has no replicas needs no room.", func(h *scenario) {
			h.inBothClusters("2", "}, replicas: {mode: Duplicate}").writeCluster("update", `{spec: {limits: {pods: 0}}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Unlabelled": {"The policy does not select the cluster any more.", func(h *scenario) {
			h.inBothClusters("2", ", selector: {matchLabels: {zone: a}}}").writeCluster("update", `{metadata: {labels: {zone: b}}}`).placed("2", "Removing", "west")
		}, ""},
		"Labelled": {"The policy does not ask for this label.", func(h *scenario) {
			h.inBothClusters("2", ", selector: {matchLabels: {zone: a}}}").writeCluster("update", `{metadata: {labels: {zone: a, tier: gold}}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Unaccepted": {"That is about its agent.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{spec: {accepted: false}}`).placed("2", "Removing", "west")
		}, "I6"},
		"ClusterDeleted": {"The plan goes on without it, and removes nothing.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("delete", `{}`).placed("2", "Draining", "west").advance()
		}, ""},
		"ClusterDeletedAndLeft": {"To delete a Cluster is no order.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("delete", `{}`).placed("2", "Draining", "west").advance().orderRemoval()
		}, "I6"},
		"ClusterMadeAgain": {"Nor to make it again.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("delete", `{}`).placed("2", "Draining", "west").advance().writeCluster("create", `{}`).advance().orderRemoval()
		}, "I6"},
		"ClusterDeletedAndObject": {"This is one.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("delete", `{}`).placed("2", "Draining", "west").deleteAtHub().orderRemoval()
		}, ""},
		"Silent": {"Unreachable is not lost.", func(h *scenario) {
			h.inBothClusters("2", "}").writeCluster("update", `{status: {conditions: [{type: Reachable, status: "False"}]}}`).placed("2", "Removing", "west")
		}, "I6"},
		"SilentAndLost": {"Unless the policy says so.", func(h *scenario) {
			h.inBothClusters("2", "}, offline: {assumeLostAfter: 1s}").writeCluster("update", `{status: {conditions: [{type: Reachable, status: "False"}]}}`).placed("2", "Removing", "west")
		}, ""},
		"Reported": {"It is not unreachable.", func(h *scenario) {
			h.inBothClusters("2", "}, offline: {assumeLostAfter: 1s}").writeCluster("update", `{status: {conditions: [{type: Reachable, status: "True"}]}}`).
				advance().placed("2", "Removing", "west")
		}, "I6"},
		"AnnotatedAway": {"The annotation has another cluster now.", func(h *scenario) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "west").annotated("2", "Removing", "west")
		}, ""},
		"AnnotatedNowhere": {"It is empty.", func(h *scenario) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "").annotated("2", "Removing")
		}, ""},
		"AnnotatedElsewhereAndNowhere": {"It is not.", func(h *scenario) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "west").annotated("2", "Removing")
		}, "I6"},
		"AnnotatedStill": {"The annotation names the cluster, and there are replicas for it.", func(h *scenario) {
			h.annotate("other-user", "east, west").annotated("1", "Active", "west").annotated("2", "Removing", "west")
		}, "I6"},
		"AnnotatedZero": {"It names it with no replicas.", func(h *scenario) {
			h.annotate("other-user", "east, west").annotated("1", "Active", "west").annotate("other-user", "east=0, west=1").annotated("2", "Removing", "west")
		}, ""},
		"AnnotatedByUs": {"A program of ours is no person.", func(h *scenario) {
			h.annotate("other-user", "east").annotated("1", "Active").advance().annotate(bed.HubUser, "west").annotated("2", "Removing", "west")
		}, "I6"},
		"AnnotationLost": {"Taking it off is no order.", func(h *scenario) {
			h.annotate("other-user", "east").annotated("1", "Active").hubDeployment("2").advance().annotated("2", "Removing")
		}, "I6"},
		"LeaderLeft": {"What took it along has left.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "east", "web").followedDecision("1", "Active").dependent(bed.HubUser, "update", "west", "web").followedDecision("2", "Removing")
		}, ""},
		"LeaderThere": {"It has not.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "east", "web").followedDecision("1", "Active").followedDecision("2", "Removing")
		}, "I6"},
		"LeaderWithout": {"It does not need it any more.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "east", "web").followedDecision("1", "Active").dependent(bed.HubUser, "update", "east", "other").followedDecision("2", "Removing")
		}, ""},
		"NoLeader": {"Nothing took it along.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "west", "web").followedDecision("1", "Active").followedDecision("2", "Removing")
		}, "I6"},
		"LeaderGone": {"The hub's record of it is done with.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "east", "web").followedDecision("1", "Active").dependent(bed.HubUser, "delete", "east", "web").followedDecision("2", "Removing")
		}, ""},
		"LeaderLost": {"Somebody has deleted the hub's record of it.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "east", "web").followedDecision("1", "Active").dependent("other-user", "delete", "east", "web").advance().followedDecision("2", "Removing")
		}, "I6"},
		"LeaderNeeds": {"The policy has other clusters, but something needs it here.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "east", "web").inBothClusters("2", "}").policy("update", "{clusters: {names: [west]}}").placed("2", "Removing", "west")
		}, "I6"},
		"PolicyAndLeaderLost": {"What a policy has placed stays when what took it along leaves.", func(h *scenario) {
			h.dependent(bed.HubUser, "update", "east", "web").inBothClusters("2", "}").policy("delete", "").dependent(bed.HubUser, "update", "west", "web").
				advance().decision("2", "Removing").amendDecision("", "p", "west")
		}, "I6"},
		"PolicyLost": {"Losing a policy is not a removal order.", func(h *scenario) {
			h.policy("create", "{clusters: {names: [east]}}").placed("1", "Active").advance().policy("delete", "").advance().placed("2", "Removing")
		}, "I6"},
		"PolicyLostElsewhere": {"Nor for one cluster of two.", func(h *scenario) {
			h.inBothClusters("2", "}").policy("update", "{clusters: {names: [west]}}").policy("delete", "").advance().placed("2", "Removing", "west")
		}, "I6"},
		"Unselected": {"Nor is no longer being selected by it.", func(h *scenario) {
			h.policy("create", "{clusters: {names: [east]}}").placed("1", "Active").placed("2", "Removing")
		}, "I6"},
		"OnUnselected": {"Unless the policy says so.", func(h *scenario) {
			h.policy("create", "{clusters: {names: [east]}, onUnselected: Remove}").placed("1", "Active").decision("2", "Removing").amendDecision("", "p")
		}, ""},
		"ObjectDeleted": {"A person deleted the object, later also the policy.", func(h *scenario) {
			h.policy("create", "{clusters: {names: [east]}}").placed("1", "Active").hubDeployment("2").advance().policy("delete", "")
			h.deleteAtHub().advance().placed("2", "Removing")
		}, ""},
		"ObjectsDeleted": {"A person deleted all of the namespace.", func(h *scenario) {
			h.inBothClusters("2", "}").add("", "other-user", "deletecollection", "apps", "deployments", "{}").Name = ""
			h.placed("2", "Removing")
		}, ""},
		"ObjectDeletedByUs": {"A program of ours is no person.", func(h *scenario) {
			h.inBothClusters("2", "}").add("", bed.HubUser, "delete", "apps", "deployments", "{}")
			h.placed("2", "Removing", "west")
		}, "I6"},
		"PodDeletedByUs": {"Its cluster has lost it.", func(h *scenario) {
			pod := func(number, state string) {
				h.placed(number, state)
				if err := unstructured.SetNestedField(h.all[len(h.all)-1].Object.Object, map[string]any{
					"kind": "Pod", "resource": "pods", "namespace": "ns", "name": "web",
				}, "spec", "object"); err != nil {
					h.t.Fatal(err)
				}
			}
			h.policy("create", "{clusters: {names: [east]}}")
			pod("1", "Active")
			h.add("", bed.HubUser, "delete", "", "pods", "{}")
			pod("2", "Removing")
		}, ""},
		"AnnotatedInStatus": {"Who writes the status can change the annotation.", func(h *scenario) {
			h.annotate("other-user", "east").annotated("1", "Active").advance().annotate("other-user", "west")
			h.all[len(h.all)-1].Subresource = "status"
			h.advance().annotated("2", "Removing", "west")
		}, ""},
		"Subresource": {"The answer of others is not the object.", func(h *scenario) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "").
				add("", "other-user", "create", "apps", "deployments", `{}`).Subresource = "other"
			h.advance().annotated("2", "Removing")
		}, ""},
		"Pending": {"It never was there.", func(h *scenario) {
			h.policy("create", "{clusters: {names: [east, west]}}").hubDeployment("2").placed("1", "Pending", "west").placed("2", "Removing", "west")
		}, ""},
		"SecretRemoved": {"A placed Secret is removed by an order, too.", func(h *scenario) {
			h.add("east", bed.AgentUser, "delete", "", "secrets", `{}`).Precondition = "u"
		}, "I2"},
		"SecretsOfOurs": {"Copies and credentials are the agent's own.", func(h *scenario) {
			h.add("east", bed.AgentUser, "delete", "", "secrets", `{}`).Namespace = "patchbay-agent-secrets"
			h.add("east", bed.AgentUser, "delete", "", "secrets", `{}`).Namespace = "patchbay-system"
		}, ""},
		"Large": {"No object of ours is that large.", func(h *scenario) {
			h.add("", bed.HubUser, "create", "placement.patchbay.io", "works", `{spec: {text: `+strings.Repeat("a", 256<<10)+`}}`)
		}, "I7"},
		"LargeButTheirs": {"Those of others may be.", func(h *scenario) {
			h.add("", "other-user", "create", "", "configmaps", `{data: {text: `+strings.Repeat("a", 256<<10)+`}}`)
		}, ""},
		"NotLarge": {"Nor is a little less.", func(h *scenario) {
			h.add("", bed.HubUser, "create", "placement.patchbay.io", "works", `{spec: {text: `+strings.Repeat("a", 255<<10)+`}}`)
		}, ""},
		"SecretTold": {"Values of Secrets are in Secrets only.", func(h *scenario) {
			h.add("", "other-user", "create", "", "secrets", `{data: {password: "aHVudGVyLWh1bnRlcg=="}}`)
			h.add("", bed.HubUser, "create", "placement.patchbay.io", "works", `{spec: {text: aHVudGVyLWh1bnRlcg==}}`)
		}, "I8"},
		"SecretKept": {"Where they may be.", func(h *scenario) {
			h.add("", "other-user", "create", "", "secrets", `{data: {password: "aHVudGVyLWh1bnRlcg=="}}`)
			h.add("east", bed.AgentUser, "create", "", "secrets", `{data: {password: "aHVudGVyLWh1bnRlcg=="}}`)
		}, ""},
		"Covered": {"West has taken over.", func(h *scenario) {
			h.hubDeployment("2").clusterDeployment("east", bed.AgentUser, "u", "2", "2")
			h.clusterDeployment("west", "other-user", "w", "2", "2")
			h.clusterDeployment("east", bed.AgentUser, "u", "0", "2")
		}, ""},
		"Uncovered": {"West has one of two.", func(h *scenario) {
			h.hubDeployment("2").clusterDeployment("east", bed.AgentUser, "u", "2", "2")
			h.clusterDeployment("west", "other-user", "w", "2", "1")
			h.clusterDeployment("east", bed.AgentUser, "u", "0", "2")
		}, "I1"},
		"Autoscaled":        {"What an autoscaler runs is wanted: 8, though the hub says 2.", func(h *scenario) { h.autoscaled("4") }, "I1"},
		"AutoscaledCovered": {"All of it runs in west.", func(h *scenario) { h.autoscaled("8") }, ""},
		"AutoscaledByBounds": {"The autoscaler takes them by the bounds that the hub has set.", func(h *scenario) {
			h.autoscaled("8").clusterDeployment("east", "hpa", "u", "8", "8")
			h.clusterDeployment("west", "other-user", "w", "8", "3")
			h.clusterDeployment("east", "hpa", "u", "7", "8")
			h.clusterDeployment("east", "hpa", "u", "4", "8")
		}, "I1"},
		"AutoscaledElsewhere": {"An autoscaler of its own accord.", func(h *scenario) {
			h.autoscaled("8").clusterDeployment("west", "hpa", "w", "3", "8")
		}, ""},
		"Unyielded": {"Without yield, the hub says what is wanted.", func(h *scenario) {
			h.hubDeployment("2").clusterDeployment("east", bed.AgentUser, "u", "2", "2")
			h.clusterDeployment("east", "other-user", "u", "8", "8")
			h.clusterDeployment("east", bed.AgentUser, "u", "2", "8")
		}, ""},
		"Late": {"The hub's answer came after the order was carried out.", func(h *scenario) {
			h.decision("1", "Active").create("u").deleteAtHub().decision("2", "Removing").orderRemoval().remove(bed.AgentUser, "u")
			h.all[4].Object.SetResourceVersion("9")
		}, ""},
		"Nothing": {"A write that changes nothing answers with what others have written while it was on its way.", func(h *scenario) {
			h.decision("1", "Active").reportAvailable("other-user", "4", "0").reportAvailable(bed.AgentUser, "5", "1").reportAvailable("other-user", "5", "1")
		}, ""},
		"Foreign": {"The counts are not ours.", func(h *scenario) {
			h.decision("1", "Active").reportAvailable("other-user", "4", "0").reportAvailable(bed.AgentUser, "5", "1")
		}, "I4"},
		"Logged": {"So are these.", func(h *scenario) { h.daemonSet("other-user", "0").daemonSet("other-user", "1") }, "I4"},
		"Unlogged": {
			"The controllers' writes of most kinds are not in the log.",
			func(h *scenario) {
				h.daemonSet("kube-controller-manager", "0").daemonSet("kube-controller-manager", "1")
			}, "",
		},
		"Inventory": {"Only people write it.", func(h *scenario) { h.add("", bed.HubUser, "update", "placement.patchbay.io", "clusters", `{}`) }, "inventory"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &scenario{t: t}
			tc.write(h)
			got := strings.Join((&invariantChecker{writes: h.all, namespaces: []string{"ns"}}).violations(), "\n")
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// The watcher finds a second run of what runs once, in the same cluster or in another one.
func TestCheckerFindsSecondRuns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, group, resource string
		clusters                []string
		sources                 []string
		want                    int
	}{
		"moved":      {"A Job runs in another cluster.", "batch", "jobs", []string{"east", "west"}, []string{"s", "s"}, 1},
		"again":      {"A Pod runs again.", "", "pods", []string{"east", "east"}, []string{"s", "s"}, 1},
		"another":    {"It is another Job of that name.", "batch", "jobs", []string{"east", "west"}, []string{"s", "t"}, 0},
		"Deployment": {"It may run anywhere.", "apps", "deployments", []string{"east", "west"}, []string{"s", "s"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &scenario{t: t}
			for i, cluster := range tc.clusters {
				h.add(cluster, bed.AgentUser, "patch", tc.group, tc.resource, `{metadata: {annotations: {placement.patchbay.io/source-uid: `+tc.sources[i]+`}}}`).Created = true
			}
			if got := (&invariantChecker{writes: h.all}).secondRuns(); len(got) != tc.want {
				t.Errorf("%s\ngot %q, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// What controllers write while a watcher reads what is live is where it begins anew.
func TestCheckerStartsFromNewest(t *testing.T) {
	t.Parallel()
	h := &scenario{t: t}
	live := slices.Clone(h.reportAvailable("other-user", "4", "2").all)
	h.reportAvailable("other-user", "5", "3").reportAvailable(bed.AgentUser, "5", "3")
	x := &invariantChecker{writes: h.all, namespaces: []string{"ns"}}
	x.restartFrom(t, nil, live)
	x.writes = append(x.writes, h.all[2])
	if got := x.violations(); len(got) > 0 {
		t.Errorf("got %q, want no write of ours blamed for the status", got)
	}
}

// The watcher takes in what people do with the test's objects that have no namespace: a deletion has nothing but the name.
func TestCheckerConcerns(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		write bed.Write
		want  bool
	}{
		"An object of the namespace.":                    {bed.Write{Verb: "delete", Namespace: "ns-1", Name: "web"}, true},
		"The namespace.":                                 {bed.Write{Verb: "delete", Name: "ns-1"}, true},
		"An object without a namespace, by its name.":    {bed.Write{Verb: "delete", Resource: "clusternetworks", Name: "ns-1-backbone"}, true},
		"Another object without a namespace.":            {bed.Write{Verb: "delete", Resource: "clusternetworks", Name: "ns-10"}, false},
		"An object of another namespace.":                {bed.Write{Verb: "delete", Namespace: "ns-2", Name: "ns-1-web"}, false},
		"An object elsewhere that names the test's one.": {bed.Write{Verb: "patch", Namespace: "cluster-east", Request: []byte(`{"namespace":"ns-1"}`)}, true},
	} {
		if got := (&invariantChecker{namespaces: []string{"ns-1"}}).concerns(tc.write); got != tc.want {
			t.Errorf("%s\ngot %t, want %t", reason, got, tc.want)
		}
	}
}

// What was only tried is no write.
func TestCheckerIgnoresDryRuns(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		write bed.Write
		want  bool
	}{
		"A patch with the parameter.": {bed.Write{URI: "/api/v1/namespaces/ns/configmaps/web?dryRun=All&fieldManager=a"}, true},
		"A deletion with the option.": {bed.Write{Request: []byte(`{"kind":"DeleteOptions","dryRun":["All"]}`)}, true},
		"A patch.":                    {bed.Write{URI: "/api/v1/namespaces/ns/configmaps/web?fieldManager=a", Request: []byte(`{"data":{"a":"b"}}`)}, false},
	} {
		if got := (write{"", tc.write}).isDryRun(); got != tc.want {
			t.Errorf("%s\ngot %t, want %t", reason, got, tc.want)
		}
	}
}
