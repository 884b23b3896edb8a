// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"errors"
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
	at := time.Unix(int64(len(h.all)), 0)
	h.all = append(h.all, write{cluster, bed.Write{
		Time: at, User: user, Verb: verb, Group: group, Resource: resource,
		Namespace: "ns", Name: "web", Object: o, URI: "/",
	}})
	return &h.all[len(h.all)-1]
}

// decide is an Assignment: the decision's number, and the state in east.
func (h *history) decide(number, state string) *history {
	h.add("", bed.HubUser, "update", "placement.patchbay.io", "assignments",
		`{metadata: {uid: a}, spec: {object: {group: apps, resource: deployments, namespace: ns, name: web}, decision: {number: `+
			number+`}, targets: [{cluster: east, state: `+state+`}]}}`)
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
	h.decide(number, state)
	object := h.all[len(h.all)-1].Object.Object
	targets, _, err := unstructured.NestedSlice(object, "spec", "targets")
	for _, one := range clusters {
		targets = append(targets, map[string]any{"cluster": one, "state": "Active"})
	}
	err = errors.Join(err,
		unstructured.SetNestedField(object, "Placement ns/p", "spec", "decision", "source"),
		unstructured.SetNestedField(object, "p", "spec", "decision", "policyUID"),
		unstructured.SetNestedSlice(object, targets, "spec", "targets"))
	if err != nil {
		h.t.Fatal(err)
	}
	return h
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
			h.decide("1", "Active").create("u").decide("2", "Removing").order().remove(bed.AgentUser, "u")
		}, ""},
		"NoOrder": {"Nobody said so.", func(h *history) {
			h.decide("1", "Active").create("u").decide("2", "Removing").remove(bed.AgentUser, "u")
		}, "I2"},
		"OtherUID": {"The order was for another object.", func(h *history) {
			h.decide("1", "Active").create("u").decide("2", "Removing").order().remove(bed.AgentUser, "v")
		}, "I2"},
		"Twice":      {"One creation for a decision.", func(h *history) { h.decide("1", "Active").create("u").create("v") }, "I3"},
		"Repaired":   {"Somebody deleted it.", func(h *history) { h.decide("1", "Active").create("u").remove("other-user", "u").create("v") }, ""},
		"Undecided":  {"It is not wanted there.", func(h *history) { h.create("u") }, "I3"},
		"SameNumber": {"What is wanted changes by a decision.", func(h *history) { h.decide("1", "Active").decide("1", "Removing") }, "I3"},
		"Moved": {"The policy has other clusters now.", func(h *history) {
			h.policy("create", "{}").placed("1", "Active").policy("update", "{}").placed("2", "Removing", "west")
		}, ""},
		"PolicyLost": {"Losing a policy is not a removal order.", func(h *history) {
			h.policy("create", "{}").placed("1", "Active").policy("delete", "").placed("2", "Removing")
		}, "I6"},
		"Unselected": {"Nor is no longer being selected by it.", func(h *history) { h.policy("create", "{}").placed("1", "Active").placed("2", "Removing") }, "I6"},
		"OnUnselected": {"Unless the policy says so.", func(h *history) {
			h.policy("create", "{onUnselected: Remove}").placed("1", "Active").placed("2", "Removing")
		}, ""},
		"ObjectDeleted": {"A person deleted the object, later also the policy.", func(h *history) {
			h.policy("create", "{}").placed("1", "Active").here("2").policy("delete", "")
			h.add("", "other-user", "delete", "apps", "deployments", "{}")
			h.placed("2", "Removing")
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
			h.decide("1", "Active").create("u").decide("2", "Removing").order().remove(bed.AgentUser, "u")
			h.all[3].Object.SetResourceVersion("9")
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
