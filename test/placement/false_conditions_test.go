// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/source"
)

// exampleSnapshot are the facts of the Deployment ns/web: the Placement ns/p has put it into east, and it is
// ready there.
func exampleSnapshot(t *testing.T) *snapshot {
	t.Helper()
	seconds, now := int32(40), metav1.NewMicroTime(time.Unix(1000, 0))
	work := v1alpha1.WorkSpec{
		HubUID: "h", Epoch: "e", Term: 1, Revision: 3, SourceGeneration: 1, Source: v1alpha1.ObjectReference{Namespace: "ns", Name: "web", UID: "s"},
		Manifests: []v1alpha1.Manifest{{Resource: "deployments", Object: runtime.RawExtension{
			Raw: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"ns","name":"web"},"spec":{"replicas":2}}`),
		}}},
	}
	f := &snapshot{
		now: now.Time, namespaces: []string{"ns"}, objects: map[objectLocation]*unstructured.Unstructured{},
		leases: map[string]coordinationv1.Lease{"east": {Spec: coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &seconds}}},
		clusters: []v1alpha1.Cluster{
			{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Spec: v1alpha1.ClusterSpec{Accepted: true}},
			{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1alpha1.ClusterSpec{Accepted: true}},
		},
		placements: []v1alpha1.Placement{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
			Spec:       v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"east"}}},
		}},
		assignments: []v1alpha1.Assignment{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}, Spec: v1alpha1.AssignmentSpec{
			Object:  v1alpha1.ObjectReference{Group: "apps", Kind: "Deployment", Resource: "deployments", Namespace: "ns", Name: "web", UID: "s"},
			Targets: []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive, Replicas: new(int32(2)), RequestedReplicas: new(int32(2))}},
		}}},
		works: []v1alpha1.Work{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-east", Name: "w"}, Spec: work,
			Status: v1alpha1.WorkStatus{Revision: 3, Manifests: []v1alpha1.ManifestStatus{{UID: "u"}}},
		}},
		appliedWorks: map[string][]v1alpha1.AppliedWork{"east": {{
			ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: v1alpha1.AppliedWorkSpec{Work: *work.DeepCopy()}, Status: v1alpha1.AppliedWorkStatus{Revision: 3},
		}}},
	}
	f.add(t, "", "apps/deployments ns/web", `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: ns, name: web, uid: s, generation: 1}, spec: {replicas: 2}}`)
	f.add(t, "east", "apps/deployments ns/web", `{apiVersion: apps/v1, kind: Deployment,
metadata: {namespace: ns, name: web, uid: u, generation: 1, annotations: {placement.patchbay.io/source-uid: s, placement.patchbay.io/hub-uid: h}}, spec: {replicas: 2},
status: {observedGeneration: 1, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [{type: Available, status: "True"}]}}`)
	return f
}

func (f *snapshot) add(t *testing.T, cluster, key, text string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = utiljson.Unmarshal(raw, &o.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.objects[objectLocation{cluster, key}] = o
}

// hubObject is the Deployment at the hub, and there that in east.
func (f *snapshot) hubObject() *unstructured.Unstructured {
	return f.objects[objectLocation{"", "apps/deployments ns/web"}]
}

func (f *snapshot) clusterObject() *unstructured.Unstructured {
	return f.objects[objectLocation{"east", "apps/deployments ns/web"}]
}

// setCondition puts a condition, as said.says writes it, where one of its type belongs.
func (f *snapshot) setCondition(t *testing.T, text, message string) {
	t.Helper()
	kind, rest, _ := strings.Cut(text, "=")
	status, reason, _ := strings.Cut(rest, ", ")
	list := []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}}
	switch kind {
	case v1alpha1.ConditionAccepted, v1alpha1.ConditionReachable, v1alpha1.ConditionDrained, v1alpha1.ConditionHubMismatch, v1alpha1.ConditionDeclaredLost:
		f.clusters[0].Status.Conditions = list
	case v1alpha1.ConditionValid:
		f.placements[0].Status.Conditions = list
	case v1alpha1.ConditionPlaced, v1alpha1.ConditionRendered, v1alpha1.ConditionMoveBlocked, v1alpha1.ConditionTrafficMerged:
		f.assignments[0].Status.Conditions = list
	case v1alpha1.ConditionApplied, v1alpha1.ConditionReady:
		f.works[0].Status.Conditions = list
	case v1alpha1.ConditionOrphaned:
		f.appliedWorks["east"][0].Status.Conditions = list
	default:
		t.Fatalf("%s is no type of conditions", kind)
	}
}

// exampleChanges of the example, by what they are called in the test's cases.
func exampleChanges(t *testing.T) map[string]func(*snapshot) {
	t.Helper()
	annotate := func(text string) func(*snapshot) {
		return func(f *snapshot) { f.hubObject().SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: text}) }
	}
	target := func(f *snapshot) *v1alpha1.Target { return &f.assignments[0].Spec.Targets[0] }
	choice := func(f *snapshot) *v1alpha1.ClusterChoice { return &f.placements[0].Spec.Clusters }
	work := func(f *snapshot) *v1alpha1.WorkSpec { return &f.works[0].Spec }
	return map[string]func(*snapshot){
		"unaccepted":   func(f *snapshot) { f.clusters[0].Spec.Accepted = false },
		"no heartbeat": func(f *snapshot) { delete(f.leases, "east") },
		"late":         func(f *snapshot) { f.now = f.now.Add(time.Minute) },
		"declared lost": func(f *snapshot) {
			f.clusters[0].Spec.DeclaredLost = &v1alpha1.DeclaredLost{LastHeartbeat: *f.leases["east"].Spec.RenewTime}
		},
		"heard of since": func(f *snapshot) {
			l := f.leases["east"]
			l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(time.Second)}
			f.leases["east"] = l
		},
		"counts": func(f *snapshot) {
			l := f.leases["east"]
			l.Annotations = map[string]string{v1alpha1.AppliedWorksAnnotation: "1"}
			f.leases["east"] = l
		},
		"drained":       func(f *snapshot) { f.clusters[0].Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainMove} },
		"limited":       func(f *snapshot) { f.clusters[0].Spec.Limits = &v1alpha1.Limits{Pods: new(int32(1))} },
		"many clusters": func(f *snapshot) { f.clusters = append(f.clusters, make([]v1alpha1.Cluster, v1alpha1.MaxTargets)...) },
		"empty":         func(f *snapshot) { f.assignments, f.works = nil, nil },
		"policy gone":   func(f *snapshot) { f.placements = nil },
		"policy twice": func(f *snapshot) {
			f.placements = append(f.placements, *f.placements[0].DeepCopy())
			f.placements[1].Name = "q"
		},
		"asks for gone": func(f *snapshot) { choice(f).Names[0] = "gone" },
		"selects none": func(f *snapshot) {
			*choice(f) = v1alpha1.ClusterChoice{Selector: metav1.SetAsLabelSelector(map[string]string{"a": "b"})}
		},
		"for gone":    annotate("gone"),
		"for west":    annotate("west"),
		"for nowhere": annotate(""),
		"for both":    annotate("east=1, west=0"),
		"for whom":    annotate("east=1,west"),
		"deleted":     func(f *snapshot) { delete(f.objects, objectLocation{"", "apps/deployments ns/web"}) },
		"changed":     func(f *snapshot) { f.hubObject().SetGeneration(2) },
		"scaled":      func(f *snapshot) { f.hubObject().Object["spec"] = map[string]any{"replicas": int64(3)} },
		"large": func(f *snapshot) {
			f.hubObject().SetAnnotations(map[string]string{"a": strings.Repeat("a", v1alpha1.MaxManifestBytes)})
		},
		"token": func(f *snapshot) {
			f.hubObject().SetKind("Secret")
			f.hubObject().Object["type"] = "kubernetes.io/service-account-token"
		},
		"a Job": func(f *snapshot) {
			f.hubObject().SetKind("Job")
			f.assignments[0].Spec.Decision.StartedIn = []v1alpha1.ClusterName{"east"}
		},
		"finished": func(f *snapshot) {
			f.hubObject().Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
		},
		"customized": func(f *snapshot) {
			f.customizations = []v1alpha1.Customization{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "zones"}}}
		},
		"no target":      func(f *snapshot) { f.assignments[0].Spec.Targets = nil },
		"leaves":         func(f *snapshot) { target(f).State = v1alpha1.TargetDraining },
		"asked for less": func(f *snapshot) { *target(f).RequestedReplicas = 1 },
		"has a claim": func(f *snapshot) {
			f.add(t, "east", "/persistentvolumeclaims ns/data-web-0", `{kind: PersistentVolumeClaim, metadata: {namespace: ns, name: data-web-0}}`)
		},
		"refuses traffic": func(f *snapshot) {
			work(f).Traffic = &v1alpha1.WorkTraffic{}
			f.works[0].Status.Traffic = &v1alpha1.WorkTrafficStatus{Revision: 1, Message: "forbidden"}
		},
		"leader": func(f *snapshot) {
			f.assignments = append(f.assignments, *f.assignments[0].DeepCopy())
			f.assignments[1].Status, f.assignments[1].Spec.Object.Name = v1alpha1.AssignmentStatus{}, "leader"
		},
		"older":    func(f *snapshot) { work(f).Revision = 2 },
		"newer":    func(f *snapshot) { work(f).Revision = 4 },
		"of a Pod": func(f *snapshot) { work(f).Manifests[0].Resource = "pods" },
		"large Work": func(f *snapshot) {
			work(f).PodSecurity = map[string]v1alpha1.PodSecurityLevel{"a": v1alpha1.PodSecurityLevel(strings.Repeat("a", v1alpha1.MaxManifestBytes))}
		},
		"ordered": func(f *snapshot) {
			work(f).Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "s"}
		},
		"no Work":      func(f *snapshot) { f.works = nil },
		"no record":    func(f *snapshot) { f.appliedWorks = nil },
		"missing":      func(f *snapshot) { delete(f.objects, objectLocation{"east", "apps/deployments ns/web"}) },
		"another":      func(f *snapshot) { f.clusterObject().SetUID("v") },
		"somebody's":   func(f *snapshot) { f.clusterObject().SetAnnotations(nil) },
		"scaled there": func(f *snapshot) { f.clusterObject().Object["spec"] = map[string]any{"replicas": int64(1)} },
		"unready":      func(f *snapshot) { delete(f.clusterObject().Object, "status") },
		"kubectl's": func(f *snapshot) {
			f.clusterObject().SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
		},
		"held": func(f *snapshot) {
			f.clusterObject().SetDeletionTimestamp(new(metav1.Now()))
			f.clusterObject().SetFinalizers([]string{"example.com/held"})
		},
		"labelled": func(f *snapshot) {
			f.add(t, "east", "/namespaces /ns", `{kind: Namespace, metadata: {name: ns, labels: {placement.patchbay.io/access: create}}}`)
		},
		"unlabelled": func(f *snapshot) { f.add(t, "east", "/namespaces /ns", `{kind: Namespace, metadata: {name: ns}}`) },
	}
}

// What the watcher takes for true of conditions, and what not: it must not be blind.
func TestCheckerFindsFalseConditions(t *testing.T) {
	t.Parallel()
	cases := []struct{ reason, says, message, yes, no string }{ // yes and no are changes of the example
		{"A person says so.", "Accepted=True, Accepted", "", "", "unaccepted"},
		{"Nobody has said so.", "Accepted=False, AwaitingAcceptance", "", "unaccepted", ""},
		{"It was heard of lately.", "Reachable=True, HeartbeatReceived", "", "", "late"},
		{"It was never heard of.", "Reachable=False, NeverJoined", "", "no heartbeat", "late"},
		{"It was heard of, and is no more.", "Reachable=False, HeartbeatLost", "", "late", ""},
		{"An admin says so.", "DeclaredLost=True, DeclaredLost", "", "declared lost", ""},
		{"It was heard of since.", "DeclaredLost=False, ReportedSince", "", "declared lost, heard of since", "declared lost"},
		{"Nothing of it is left.", "Drained=True, Drained", "", "empty", ""},
		{"Something of it is left.", "Drained=False, Draining", "", "drained", "drained, empty"},
		{"What cannot leave is left.", "Drained=False, DrainBlocked", "", "drained", "drained, empty"},
		{"Nobody counts what it has.", "Drained=Unknown, AppliedWorksUnknown", "", "late", "counts"},
		{"No Work is behind its record.", "HubMismatch=False, AsExpected", "", "newer", "older"},
		{"A Work is behind its record.", "HubMismatch=True, HubMismatch", "", "older", ""},
		{"What it names exists.", "Valid=True, Valid", "", "", "asks for gone"},
		{"It names what does not exist.", "Valid=False, UnknownCluster", `there is no Cluster "gone"`, "asks for gone", ""},
		{"It is where it is asked for.", "Placed=True, AsExpected", "", "", "for west"},
		{"All its replicas have a place.", "Placed=True, AsExpected", "", "", "scaled"},
		{"The annotation is empty.", "Placed=True, NoClustersRequested", "", "for nowhere, no target", "no target"},
		{"And no cluster has it.", "Placed=True, NoClustersRequested", "", "deleted, no target", "for nowhere"},
		{"Nobody asks for it.", "Placed=False, NoPolicy", "", "policy gone", ""},
		{"Nor does it itself.", "Placed=False, NoPolicy", "", "policy gone", "policy gone, for west"},
		{"No Cluster is selected.", "Placed=False, NoClusterSelected", "", "selects none", ""},
		{"It is asked for where nothing is.", "Placed=False, UnknownCluster", `there is no Cluster "gone"`, "for gone", "for west"},
		{"Two select it.", "Placed=False, PolicyTie", "", "policy twice", ""},
		{"And it does not choose itself.", "Placed=False, PolicyTie", "", "policy twice", "policy twice, for west"},
		{"One has a weight.", "Placed=False, InvalidAnnotation", "", "for whom", "for both"},
		{"A claim is there.", "Placed=False, VolumesRefused", "PersistentVolumeClaim data has data in east: the object stays", "has a claim", ""},
		{"A claim is lost with its cluster.", "Placed=False, VolumesRefused", "PersistentVolumeClaim data has data in east, which is lost: no", "has a claim", ""},
		{"Each cluster has the endpoints of the others.", "TrafficMerged=True, AsExpected", "", "", "refuses traffic"},
		{"The agent reports why.", "TrafficMerged=False, TrafficRefused", "", "refuses traffic", ""},
		{"It has finished, and left.", "Placed=True, AsExpected", "it has finished in east", "a Job, finished, no target", "a Job, no target"},
		{"It has run there, and is asked for elsewhere.", "Placed=False, RunsOnce", "it has started in east", "a Job, for west", "a Job"},
		{"It was deleted there.", "Placed=False, RunsOnce", "it has started in east", "a Job, missing", "a Job"},
		{"It has to leave.", "Placed=False, RunsOnce", "it has started in east", "a Job, drained", "a Job"},
		{"It may run again.", "Placed=False, RunsOnce", "it has started in east", "a Job, for west", "for west"},
		{"There are so many.", "Placed=False, TooManyTargets", "", "many clusters", ""},
		{"Who takes it along has none.", "Placed=False, AssignmentLost", "the Assignment of Deployment.apps ns/leader is missing", "", "leader"},
		{"Something bounds it.", "Placed=False, Unschedulable", "", "limited", ""},
		{"One that is asked for is silent.", "Placed=False, WaitingForCluster", "east does not report", "late", ""},
		{"Something moves.", "MoveBlocked=True, Stalled", "", "leaves", ""},
		{"Replicas move.", "MoveBlocked=False, Progressing", "", "asked for less", ""},
		{"Nothing moves.", "MoveBlocked=False, AsExpected", "", "", "leaves"},
		{"Each Work has the present object.", "Rendered=True, AsExpected", "", "", "changed"},
		{"There is each Work.", "Rendered=True, AsExpected", "", "", "no Work"},
		{"With the replicas that are asked.", "Rendered=True, AsExpected", "", "", "asked for less"},
		{"It is large.", "Rendered=False, TooLarge", "", "large", ""},
		{"The rule is there.", "Rendered=False, InvalidRule", "Customization ns/zones: spec.rules[0]", "customized", ""},
		{"It is a token.", "Rendered=False, NotPlaceable", "", "token", ""},
		{"It is there.", "Applied=True, AsExpected", "", "", "missing"},
		{"In this revision.", "Applied=True, AsExpected", "", "", "newer"},
		{"With a record.", "Applied=True, AsExpected", "", "", "no record"},
		{"It is the one that was reported.", "Applied=True, AsExpected", "", "", "another"},
		{"And made of this Work.", "Applied=True, AsExpected", "", "", "somebody's"},
		{"As the Work says.", "Applied=True, AsExpected", "", "", "scaled there"},
		{"It is not there yet.", "Applied=False, Progressing", "", "missing", ""},
		{"It is refused.", "Applied=False, Refused", "", "missing", ""},
		{"The namespace allows nothing.", "Applied=False, Refused", "kubectl label namespace ns placement.patchbay.io/access=create", "unlabelled", "labelled, missing"},
		{"Nothing is left to be refused.", "Applied=False, Refused", "", "ordered", "ordered, missing"},
		{"A field is somebody else's.", "Applied=False, Conflict", `conflict with "kubectl"`, "kubectl's", ""},
		{"All of it is somebody else's.", "Applied=False, Conflict", "", "somebody's", "missing"},
		{"What runs once is missing.", "Applied=False, DeletedInCluster", "", "of a Pod, missing", ""},
		{"Nobody knows what it is.", "Applied=False, RecordLost", "", "ordered, no record", "ordered"},
		{"A finalizer holds it.", "Applied=False, RemovalBlocked", "its finalizers block the deletion: example.com/held", "ordered, held", "ordered"},
		{"The message names the finalizer.", "Applied=False, RemovalBlocked", "its finalizers block the deletion: example.com/held", "ordered, held", "ordered, missing"},
		{"All is gone.", "Applied=False, Removed", "", "ordered, missing, no record", "ordered, no record"},
		{"Its record is newer.", "Applied=False, HubMismatch", "", "older", ""},
		{"The Work is large.", "Applied=False, TooLarge", "", "large Work", ""},
		{"The API server takes it for wrong.", "Applied=False, Invalid", "", "missing", ""},
		{"The API server cannot read it.", "Applied=False, BadRequest", "", "missing", ""},
		{"Its kind is not served.", "Applied=False, NotFound", "", "missing", ""},
		{"It does not go through.", "Applied=False, RequestEntityTooLarge", "", "missing", ""},
		{"Its Pods are available.", "Ready=True, AsExpected", "", "", "unready"},
		{"Its Pods are not.", "Ready=False, Progressing", "", "unready", ""},
		{"Its Work is gone.", "Orphaned=True, Orphaned", "", "no Work", ""},
	}
	seen := map[string]bool{}
	for _, tc := range cases {
		seen[tc.says] = true
		for want, names := range map[bool]string{true: tc.yes, false: tc.no} {
			f := exampleSnapshot(t)
			f.setCondition(t, tc.says, tc.message)
			for name := range strings.SplitSeq(names, ", ") {
				if change := exampleChanges(t)[name]; change != nil {
					change(f)
				} else if name != "" {
					t.Fatalf("there is no change %q", name)
				}
			}
			got := strings.Join(sortedLines(f.findFalseConditions()), "\n")
			named := strings.HasPrefix(got, "I9: ") && strings.Contains(got, " says "+tc.says+": ")
			if want != (got == "") || !want && !named {
				t.Errorf("%s\n%s, after %q: got %q, want it true: %t", tc.reason, tc.says, names, got, want)
			}
		}
	}
	for says := range conditionChecks {
		if !seen[says] {
			t.Errorf("no case has %q", says)
		}
	}
}

// A condition may be behind what it is about for a while. It is broken when it was untrue each time
// in that while, also when it has become true by the end of the test.
func TestCheckerFindsLastingFalseConditions(t *testing.T) {
	t.Parallel()
	allowed := strings.Repeat("u", int(conditionTimeout/checkInterval))
	cases := []struct {
		reason, looks string // one each checkInterval: whether the condition is untrue then
		broken        bool
	}{
		{"It was behind.", "-" + allowed + "-", false},
		{"It was for too long.", "-" + allowed + "u-", true},
		{"It was true in between.", allowed + "-" + allowed, false},
		{"The checker had no snapshot for a while.", allowed + "?" + allowed, false},
	}
	for _, tc := range cases {
		u := falseConditions{}
		for i, look := range tc.looks {
			switch at := time.Unix(int64(i)*int64(checkInterval/time.Second), 0); look {
			case 'u':
				u.observe(at, map[string]string{"web says AsExpected": "it is not"})
			case '-':
				u.observe(at, nil)
			default:
				u.firstSeen = nil
			}
		}
		if got := len(sortedLines(u.lasting)) > 0; got != tc.broken {
			t.Errorf("%s\n%s: got broken %t, want %t", tc.reason, tc.looks, got, tc.broken)
		}
	}
}

// A condition that nobody thought of is not passed over, and each reason of the API is thought of.
func TestEveryReasonIsCovered(t *testing.T) {
	t.Parallel()
	f := exampleSnapshot(t)
	f.setCondition(t, "Placed=True, NoPolicy", "")
	if got := sortedLines(f.findFalseConditions()); len(got) != 1 {
		t.Errorf("a condition that is in no table: got %q, want it reported", got)
	}
	reasons := map[string]bool{}
	for _, says := range slices.Concat(slices.Collect(maps.Keys(conditionChecks)), slices.Collect(maps.Keys(uncheckedConditions))) {
		_, reason, _ := strings.Cut(says, ", ")
		reasons[reason] = true
		if conditionChecks[says] != nil && uncheckedConditions[says] != "" {
			t.Errorf("%q is in both tables", says)
		}
	}
	found := apiReasons(t)
	for name, reason := range found {
		if !reasons[reason] {
			t.Errorf("%s is in no table: add how %q is judged, or why it cannot be", name, reason)
		}
	}
	if len(found) == 0 {
		t.Error("the API has no reasons: the search is blind")
	}
}

// apiReasons are the constants of the API that are reasons, by name.
func apiReasons(t *testing.T) map[string]string {
	t.Helper()
	dir, err := source.Path("api", "placement", "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
				return true
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				found[spec.Names[0].Name], err = strconv.Unquote(value.Value)
			}
			return err == nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
