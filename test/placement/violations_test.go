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

// history makes writes, one second after the other, of the Deployment ns/web and what is
// said of it at the hub.
type history struct {
	t   *testing.T
	all []write

	pause time.Duration // so far
}

func (h *history) add(cluster, user, verb, group, resource, body string) *write {
	h.t.Helper()
	o := unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(body))
	if err == nil {
		err = utiljson.Unmarshal(raw, &o.Object)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	at := time.Unix(int64(len(h.all)), 0).Add(h.pause)
	h.all = append(h.all, write{cluster, bed.Write{
		Time: at, User: user, Verb: verb, Group: group, Resource: resource,
		Namespace: "ns", Name: "web", Object: o, URI: "/",
	}})
	return &h.all[len(h.all)-1]
}

// later lets so much time pass that nobody acts on what was said before.
func (h *history) later() *history {
	h.pause += 2 * late
	return h
}

// decide is an Assignment: the decision's number, and the state in east.
func (h *history) decide(number, state string) *history {
	h.add("", bed.HubUser, "update", "placement.patchbay.io", "assignments",
		`{metadata: {uid: a}, spec: {object: {group: apps, kind: Deployment, resource: deployments, namespace: ns, name: web}, decision: {number: `+
			number+`}, targets: [{cluster: east, state: `+state+`}]}}`)
	return h
}

// says changes the last decision: its source, and the further clusters where the object is to run.
func (h *history) says(source, policy string, clusters ...any) *history {
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

// order is a Work in east that orders the removal of what was made from source s.
func (h *history) order() *history {
	h.add("", bed.HubUser, "update", "placement.patchbay.io", "works",
		`{spec: {removal: {policy: Delete, sourceUID: s}, manifests: [{resource: deployments, object: {apiVersion: apps/v1, metadata: {namespace: ns, name: web}}}]}}`).
		Namespace = "cluster-east"
	return h
}

// placed is decide by the Placement ns/p. With clusters, the object is to run there, too.
func (h *history) placed(number, state string, clusters ...any) *history {
	return h.decide(number, state).says("Placement ns/p", "p", clusters...)
}

// annotated is decide by the annotation.
func (h *history) annotated(number, state string, clusters ...any) *history {
	return h.decide(number, state).says("annotation", "", clusters...)
}

// annotate is the Deployment of two replicas at the hub with an annotation.
func (h *history) annotate(user, clusters string) *history {
	h.add("", user, "update", "apps", "deployments",
		`{metadata: {annotations: {placement.patchbay.io/clusters: "`+clusters+`"}}, spec: {replicas: 2}}`)
	return h
}

// inventory is the Cluster east as a person writes it.
func (h *history) inventory(verb, body string) *history {
	h.add("", "other-user", verb, "placement.patchbay.io", "clusters", body).Name = "east"
	return h
}

// both is the Deployment with replicas, in east and west by the Placement ns/p, which may say more.
func (h *history) both(replicas, more string) *history {
	return h.inventory("create", `{metadata: {labels: {zone: a}}, spec: {accepted: true}}`).
		policy("create", "{clusters: {names: [east, west]"+more+"}").here(replicas).placed("1", "Active", "west").later()
}

// leader is the Assignment of the Deployment front in a cluster, which takes something along. That
// it is on its way out of there is enough for it to need that.
func (h *history) leader(user, verb, cluster, takes string) *history {
	h.add("", user, verb, "placement.patchbay.io", "assignments",
		`{metadata: {uid: l}, spec: {object: {group: apps, kind: Deployment, resource: deployments, namespace: ns, name: front},
targets: [{cluster: `+cluster+`, state: Draining}], follows: [{group: apps, kind: Deployment, name: `+takes+`}]}}`).Name = "front"
	return h
}

// followed is decide by what takes the object along.
func (h *history) followed(number, state string) *history {
	return h.decide(number, state).says("followed", "")
}

// policy is a write of the Placement ns/p by a person.
func (h *history) policy(verb, spec string) *history {
	body := `{}`
	if verb != "delete" {
		body = `{metadata: {uid: p}, spec: ` + spec + `}`
	}
	h.add("", "other-user", verb, "placement.patchbay.io", "placements", body).Name = "p"
	return h
}

// there is the Deployment in a cluster: who wrote it, replicas asked and available.
func (h *history) there(cluster, user, uid, asked, available string) *write {
	return h.add(cluster, user, "patch", "apps", "deployments",
		`{metadata: {uid: `+uid+`, annotations: {placement.patchbay.io/source-uid: s}}, spec: {replicas: `+asked+`}, status: {availableReplicas: `+available+`}}`)
}

// counted is the Deployment in east at a resourceVersion, whose availableReplicas are
// somebody's.
func (h *history) counted(user, version, available string) *history {
	w := h.there("east", user, "u", "2", available)
	w.Object.SetResourceVersion(version)
	w.Object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "other-user", FieldsV1: metav1.NewFieldsV1(`{"f:status": {"f:availableReplicas": {}}}`),
	}})
	return h
}

// daemons is our write of the DaemonSet in east, of which a manager has said how many are
// ready.
func (h *history) daemons(manager, ready string) *history {
	w := h.add("east", bed.AgentUser, "patch", "apps", "daemonsets", `{metadata: {uid: d}, status: {numberReady: `+ready+`}}`)
	w.Object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:status": {"f:numberReady": {}}}`),
	}})
	return h
}

func (h *history) create(uid string) *history {
	h.there("east", bed.AgentUser, uid, "2", "0").Created = true
	return h
}

func (h *history) remove(user, uid string) *history {
	h.add("east", user, "delete", "apps", "deployments", `{}`).Precondition = types.UID(uid)
	return h
}

// dropped is a person's order to remove the Deployment everywhere.
func (h *history) dropped() *history {
	h.add("", "other-user", "delete", "apps", "deployments", `{}`)
	return h
}

// here is the Deployment at the hub.
func (h *history) here(replicas string) *history {
	h.add("", "other-user", "update", "apps", "deployments", `{spec: {replicas: `+replicas+`}}`)
	return h
}

// What the watcher lets pass, and what not: it must not be blind.
func TestWatcherSees(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		write  func(*history)
		want   string
	}{
		"Life": {"Made, ordered to go, gone.", func(h *history) {
			h.decide("1", "Active").create("u").dropped().decide("2", "Removing").order().remove(bed.AgentUser, "u")
		}, ""},
		"NoOrder": {"Nobody said so.", func(h *history) {
			h.decide("1", "Active").create("u").dropped().decide("2", "Removing").remove(bed.AgentUser, "u")
		}, "I2"},
		"OtherUID": {"The order was for another object.", func(h *history) {
			h.decide("1", "Active").create("u").dropped().decide("2", "Removing").order().remove(bed.AgentUser, "v")
		}, "I2"},
		"Twice":      {"One creation for a decision.", func(h *history) { h.decide("1", "Active").create("u").create("v") }, "I3"},
		"Repaired":   {"Somebody deleted it.", func(h *history) { h.decide("1", "Active").create("u").remove("other-user", "u").create("v") }, ""},
		"Undecided":  {"It is not wanted there.", func(h *history) { h.create("u") }, "I3"},
		"SameNumber": {"What is wanted changes by a decision.", func(h *history) { h.decide("1", "Active").dropped().decide("1", "Removing") }, "I3"},
		"Moved": {"The policy has other clusters now.", func(h *history) {
			h.both("2", "}").policy("update", "{clusters: {names: [west]}}").placed("2", "Removing", "west")
		}, ""},
		"NotMoved": {"The policy has this cluster still.", func(h *history) {
			h.both("2", "}").policy("update", "{clusters: {names: [west, east]}}").placed("2", "Removing", "west")
		}, "I6"},
		"SelectsNone": {"A policy without clusters leaves what is there.", func(h *history) {
			h.both("2", "}").policy("update", "{}").placed("2", "Removing", "west")
		}, "I6"},
		"UnknownPolicy": {"Nobody has made it.", func(h *history) { h.placed("1", "Active", "west").placed("2", "Removing", "west") }, "I6"},
		"ShareOfZero": {"One replica, two clusters.", func(h *history) {
			h.both("2", "}").here("1").placed("2", "Removing", "west")
		}, ""},
		"ShareOfOne": {"A kind that is not divided is in both.", func(h *history) {
			h.both("2", "}, replicas: {mode: Duplicate}").here("1").placed("2", "Removing", "west")
		}, "I6"},
		"Light": {"Its weight is too small for a replica.", func(h *history) {
			h.both("4", "}").policy("update", "{clusters: {names: [east, west]}, replicas: {weights: {east: 1, west: 9}}}").placed("2", "Removing", "west")
		}, ""},
		"Heavy": {"It is not.", func(h *history) {
			h.both("4", "}").policy("update", "{clusters: {names: [east, west]}, replicas: {weights: {east: 1, west: 3}}}").placed("2", "Removing", "west")
		}, "I6"},
		"Scaled": {"A person scales by the subresource.", func(h *history) {
			h.both("2", "}").add("", "other-user", "patch", "apps", "deployments", `{spec: {replicas: 1}}`).Subresource = "scale"
			h.placed("2", "Removing", "west")
		}, ""},
		"Fewer": {"The policy wants one of both now.", func(h *history) {
			h.both("2", "}").policy("update", "{clusters: {names: [east, west], count: 1}}").placed("2", "Removing", "west")
		}, ""},
		"FewerBefore": {"It did already.", func(h *history) {
			h.both("2", ", count: 1}").placed("2", "Removing", "west")
		}, "I6"},
		"Drained": {"A person empties the cluster.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {drain: {mode: Move}}}`).placed("2", "Removing", "west")
		}, ""},
		"DrainedOther": {"This one is another.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {drain: {mode: Move}}}`)
			h.all[len(h.all)-1].Name = "west"
			h.placed("2", "Removing", "west")
		}, "I6"},
		"DrainedBefore": {"It was taken back, and that is known.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {drain: {mode: Move}}}`).inventory("update", `{spec: {}}`).later().placed("2", "Removing", "west")
		}, "I6"},
		"DrainedLately": {"It was taken back, and the hub may not know yet.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {drain: {mode: Move}}}`).inventory("update", `{spec: {}}`).placed("2", "Removing", "west")
		}, ""},
		"DrainOff": {"That drains nothing.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {drain: {mode: "Off"}}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Tainted": {"It does not tolerate the taint.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {taints: [{key: a, effect: NoExecute}]}}`).placed("2", "Removing", "west")
		}, ""},
		"Tolerated": {"It does.", func(h *history) {
			h.both("2", ", tolerations: [{key: a}]}").inventory("update", `{spec: {taints: [{key: a, effect: NoExecute}]}}`).placed("2", "Removing", "west")
		}, "I6"},
		"TaintedForNew": {"What is there stays.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {unschedulable: true, taints: [{key: a, effect: NoSchedule}]}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Limited": {"There is no room for a replica any more.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {limits: {pods: 0}}}`).placed("2", "Removing", "west")
		}, ""},
		"LimitedWhole": {"What has no replicas needs no room.", func(h *history) {
			h.both("2", "}, replicas: {mode: Duplicate}").inventory("update", `{spec: {limits: {pods: 0}}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Unlabelled": {"The policy does not select the cluster any more.", func(h *history) {
			h.both("2", ", selector: {matchLabels: {zone: a}}}").inventory("update", `{metadata: {labels: {zone: b}}}`).placed("2", "Removing", "west")
		}, ""},
		"Labelled": {"The policy does not ask for this label.", func(h *history) {
			h.both("2", ", selector: {matchLabels: {zone: a}}}").inventory("update", `{metadata: {labels: {zone: a, tier: gold}}}`).placed("2", "Removing", "west")
		}, "I6"},
		"Unaccepted": {"That is about its agent.", func(h *history) {
			h.both("2", "}").inventory("update", `{spec: {accepted: false}}`).placed("2", "Removing", "west")
		}, "I6"},
		"ClusterDeleted": {"The plan goes on without it, and removes nothing.", func(h *history) {
			h.both("2", "}").inventory("delete", `{}`).placed("2", "Draining", "west").later()
		}, ""},
		"ClusterDeletedAndLeft": {"To delete a Cluster is no order.", func(h *history) {
			h.both("2", "}").inventory("delete", `{}`).placed("2", "Draining", "west").later().order()
		}, "I6"},
		"ClusterMadeAgain": {"Nor to make it again.", func(h *history) {
			h.both("2", "}").inventory("delete", `{}`).placed("2", "Draining", "west").later().inventory("create", `{}`).later().order()
		}, "I6"},
		"ClusterDeletedAndObject": {"This is one.", func(h *history) {
			h.both("2", "}").inventory("delete", `{}`).placed("2", "Draining", "west").dropped().order()
		}, ""},
		"Silent": {"Unreachable is not lost.", func(h *history) {
			h.both("2", "}").inventory("update", `{status: {conditions: [{type: Reachable, status: "False"}]}}`).placed("2", "Removing", "west")
		}, "I6"},
		"SilentAndLost": {"Unless the policy says so.", func(h *history) {
			h.both("2", "}, offline: {assumeLostAfter: 1s}").inventory("update", `{status: {conditions: [{type: Reachable, status: "False"}]}}`).placed("2", "Removing", "west")
		}, ""},
		"Reported": {"It is not unreachable.", func(h *history) {
			h.both("2", "}, offline: {assumeLostAfter: 1s}").inventory("update", `{status: {conditions: [{type: Reachable, status: "True"}]}}`).
				later().placed("2", "Removing", "west")
		}, "I6"},
		"AnnotatedAway": {"The annotation has another cluster now.", func(h *history) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "west").annotated("2", "Removing", "west")
		}, ""},
		"AnnotatedNowhere": {"It is empty.", func(h *history) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "").annotated("2", "Removing")
		}, ""},
		"AnnotatedElsewhereAndNowhere": {"It is not.", func(h *history) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "west").annotated("2", "Removing")
		}, "I6"},
		"AnnotatedStill": {"The annotation names the cluster, and there are replicas for it.", func(h *history) {
			h.annotate("other-user", "east, west").annotated("1", "Active", "west").annotated("2", "Removing", "west")
		}, "I6"},
		"AnnotatedZero": {"It names it with no replicas.", func(h *history) {
			h.annotate("other-user", "east, west").annotated("1", "Active", "west").annotate("other-user", "east=0, west=1").annotated("2", "Removing", "west")
		}, ""},
		"AnnotatedByUs": {"A program of ours is no person.", func(h *history) {
			h.annotate("other-user", "east").annotated("1", "Active").later().annotate(bed.HubUser, "west").annotated("2", "Removing", "west")
		}, "I6"},
		"AnnotationLost": {"Taking it off is no order.", func(h *history) {
			h.annotate("other-user", "east").annotated("1", "Active").here("2").later().annotated("2", "Removing")
		}, "I6"},
		"LeaderLeft": {"What took it along has left.", func(h *history) {
			h.leader(bed.HubUser, "update", "east", "web").followed("1", "Active").leader(bed.HubUser, "update", "west", "web").followed("2", "Removing")
		}, ""},
		"LeaderThere": {"It has not.", func(h *history) {
			h.leader(bed.HubUser, "update", "east", "web").followed("1", "Active").followed("2", "Removing")
		}, "I6"},
		"LeaderWithout": {"It does not need it any more.", func(h *history) {
			h.leader(bed.HubUser, "update", "east", "web").followed("1", "Active").leader(bed.HubUser, "update", "east", "other").followed("2", "Removing")
		}, ""},
		"NoLeader": {"Nothing took it along.", func(h *history) {
			h.leader(bed.HubUser, "update", "west", "web").followed("1", "Active").followed("2", "Removing")
		}, "I6"},
		"LeaderGone": {"The hub's record of it is done with.", func(h *history) {
			h.leader(bed.HubUser, "update", "east", "web").followed("1", "Active").leader(bed.HubUser, "delete", "east", "web").followed("2", "Removing")
		}, ""},
		"LeaderLost": {"Somebody has deleted the hub's record of it.", func(h *history) {
			h.leader(bed.HubUser, "update", "east", "web").followed("1", "Active").leader("other-user", "delete", "east", "web").later().followed("2", "Removing")
		}, "I6"},
		"LeaderNeeds": {"The policy has other clusters, but something needs it here.", func(h *history) {
			h.leader(bed.HubUser, "update", "east", "web").both("2", "}").policy("update", "{clusters: {names: [west]}}").placed("2", "Removing", "west")
		}, "I6"},
		"PolicyAndLeaderLost": {"What a policy has placed stays when what took it along leaves.", func(h *history) {
			h.leader(bed.HubUser, "update", "east", "web").both("2", "}").policy("delete", "").leader(bed.HubUser, "update", "west", "web").
				later().decide("2", "Removing").says("", "p", "west")
		}, "I6"},
		"PolicyLost": {"Losing a policy is not a removal order.", func(h *history) {
			h.policy("create", "{clusters: {names: [east]}}").placed("1", "Active").later().policy("delete", "").later().placed("2", "Removing")
		}, "I6"},
		"PolicyLostElsewhere": {"Nor for one cluster of two.", func(h *history) {
			h.both("2", "}").policy("update", "{clusters: {names: [west]}}").policy("delete", "").later().placed("2", "Removing", "west")
		}, "I6"},
		"Unselected": {"Nor is no longer being selected by it.", func(h *history) {
			h.policy("create", "{clusters: {names: [east]}}").placed("1", "Active").placed("2", "Removing")
		}, "I6"},
		"OnUnselected": {"Unless the policy says so.", func(h *history) {
			h.policy("create", "{clusters: {names: [east]}, onUnselected: Remove}").placed("1", "Active").decide("2", "Removing").says("", "p")
		}, ""},
		"ObjectDeleted": {"A person deleted the object, later also the policy.", func(h *history) {
			h.policy("create", "{clusters: {names: [east]}}").placed("1", "Active").here("2").later().policy("delete", "")
			h.dropped().later().placed("2", "Removing")
		}, ""},
		"ObjectsDeleted": {"A person deleted all of the namespace.", func(h *history) {
			h.both("2", "}").add("", "other-user", "deletecollection", "apps", "deployments", "{}").Name = ""
			h.placed("2", "Removing")
		}, ""},
		"ObjectDeletedByUs": {"A program of ours is no person.", func(h *history) {
			h.both("2", "}").add("", bed.HubUser, "delete", "apps", "deployments", "{}")
			h.placed("2", "Removing", "west")
		}, "I6"},
		"PodDeletedByUs": {"Its cluster has lost it.", func(h *history) {
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
		"AnnotatedInStatus": {"Who writes the status can change the annotation.", func(h *history) {
			h.annotate("other-user", "east").annotated("1", "Active").later().annotate("other-user", "west")
			h.all[len(h.all)-1].Subresource = "status"
			h.later().annotated("2", "Removing", "west")
		}, ""},
		"Subresource": {"The answer of others is not the object.", func(h *history) {
			h.annotate("other-user", "east").annotated("1", "Active").annotate("other-user", "").
				add("", "other-user", "create", "apps", "deployments", `{}`).Subresource = "other"
			h.later().annotated("2", "Removing")
		}, ""},
		"Pending": {"It never was there.", func(h *history) {
			h.policy("create", "{clusters: {names: [east, west]}}").here("2").placed("1", "Pending", "west").placed("2", "Removing", "west")
		}, ""},
		"SecretRemoved": {"A placed Secret is removed by an order, too.", func(h *history) {
			h.add("east", bed.AgentUser, "delete", "", "secrets", `{}`).Precondition = "u"
		}, "I2"},
		"SecretsOfOurs": {"Copies and credentials are the agent's own.", func(h *history) {
			h.add("east", bed.AgentUser, "delete", "", "secrets", `{}`).Namespace = "patchbay-agent-secrets"
			h.add("east", bed.AgentUser, "delete", "", "secrets", `{}`).Namespace = "patchbay-system"
		}, ""},
		"Large": {"No object of ours is that large.", func(h *history) {
			h.add("", bed.HubUser, "create", "placement.patchbay.io", "works", `{spec: {text: `+strings.Repeat("a", 256<<10)+`}}`)
		}, "I7"},
		"LargeButTheirs": {"Those of others may be.", func(h *history) {
			h.add("", "other-user", "create", "", "configmaps", `{data: {text: `+strings.Repeat("a", 256<<10)+`}}`)
		}, ""},
		"NotLarge": {"Nor is a little less.", func(h *history) {
			h.add("", bed.HubUser, "create", "placement.patchbay.io", "works", `{spec: {text: `+strings.Repeat("a", 255<<10)+`}}`)
		}, ""},
		"SecretTold": {"Values of Secrets are in Secrets only.", func(h *history) {
			h.add("", "other-user", "create", "", "secrets", `{data: {password: "aHVudGVyLWh1bnRlcg=="}}`)
			h.add("", bed.HubUser, "create", "placement.patchbay.io", "works", `{spec: {text: aHVudGVyLWh1bnRlcg==}}`)
		}, "I8"},
		"SecretKept": {"Where they may be.", func(h *history) {
			h.add("", "other-user", "create", "", "secrets", `{data: {password: "aHVudGVyLWh1bnRlcg=="}}`)
			h.add("east", bed.AgentUser, "create", "", "secrets", `{data: {password: "aHVudGVyLWh1bnRlcg=="}}`)
		}, ""},
		"Covered": {"West has taken over.", func(h *history) {
			h.here("2").there("east", bed.AgentUser, "u", "2", "2")
			h.there("west", "other-user", "w", "2", "2")
			h.there("east", bed.AgentUser, "u", "0", "2")
		}, ""},
		"Uncovered": {"West has one of two.", func(h *history) {
			h.here("2").there("east", bed.AgentUser, "u", "2", "2")
			h.there("west", "other-user", "w", "2", "1")
			h.there("east", bed.AgentUser, "u", "0", "2")
		}, "I1"},
		"Late": {"The hub's answer came after the order was carried out.", func(h *history) {
			h.decide("1", "Active").create("u").dropped().decide("2", "Removing").order().remove(bed.AgentUser, "u")
			h.all[4].Object.SetResourceVersion("9")
		}, ""},
		"Nothing": {"A write that changes nothing answers with what others have written while it was on its way.", func(h *history) {
			h.decide("1", "Active").counted("other-user", "4", "0").counted(bed.AgentUser, "5", "1").counted("other-user", "5", "1")
		}, ""},
		"Foreign": {"The counts are not ours.", func(h *history) {
			h.decide("1", "Active").counted("other-user", "4", "0").counted(bed.AgentUser, "5", "1")
		}, "I4"},
		"Logged": {"So are these.", func(h *history) { h.daemons("other-user", "0").daemons("other-user", "1") }, "I4"},
		"Unlogged": {
			"The controllers' writes of most kinds are not in the log.",
			func(h *history) { h.daemons("kube-controller-manager", "0").daemons("kube-controller-manager", "1") }, "",
		},
		"Inventory": {"Only people write it.", func(h *history) { h.add("", bed.HubUser, "update", "placement.patchbay.io", "clusters", `{}`) }, "inventory"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{t: t}
			tc.write(h)
			got := strings.Join((&watcher{all: h.all, namespaces: []string{"ns"}}).broken(), "\n")
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// What controllers write while a watcher reads what is live is where it begins anew.
func TestWatcherBeginsWithTheNewest(t *testing.T) {
	t.Parallel()
	h := &history{t: t}
	live := slices.Clone(h.counted("other-user", "4", "2").all)
	h.counted("other-user", "5", "3").counted(bed.AgentUser, "5", "3")
	x := &watcher{all: h.all, namespaces: []string{"ns"}}
	x.anew(t, nil, live)
	x.all = append(x.all, h.all[2])
	if got := x.broken(); len(got) > 0 {
		t.Errorf("got %q, want no write of ours blamed for the status", got)
	}
}

// What was only tried is no write.
func TestWatcherSeesDryRuns(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		write bed.Write
		want  bool
	}{
		"A patch with the parameter.": {bed.Write{URI: "/api/v1/namespaces/ns/configmaps/web?dryRun=All&fieldManager=a"}, true},
		"A deletion with the option.": {bed.Write{Request: []byte(`{"kind":"DeleteOptions","dryRun":["All"]}`)}, true},
		"A patch.":                    {bed.Write{URI: "/api/v1/namespaces/ns/configmaps/web?fieldManager=a", Request: []byte(`{"data":{"a":"b"}}`)}, false},
	} {
		if got := (write{"", tc.write}).dry(); got != tc.want {
			t.Errorf("%s\ngot %t, want %t", reason, got, tc.want)
		}
	}
}
