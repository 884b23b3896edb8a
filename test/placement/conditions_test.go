// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// reasonUnless says something unless all is well.
func reasonUnless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func isAccepted(_ *snapshot, s *reportedCondition) string {
	is := s.cluster.Spec.Accepted
	return reasonUnless(is == (s.Status == metav1.ConditionTrue), "spec.accepted is %t", is)
}

func hasHeartbeat(f *snapshot, s *reportedCondition) string {
	return reasonUnless(f.isAlive(s.cluster.Name), "its heartbeat has run out: %v", f.leases[s.cluster.Name].Spec.RenewTime)
}

func neverSeen(f *snapshot, s *reportedCondition) string {
	return reasonUnless(f.leases[s.cluster.Name].Spec.RenewTime == nil, "it has a heartbeat")
}

func heartbeatExpired(f *snapshot, s *reportedCondition) string {
	return reasonUnless(!f.isAlive(s.cluster.Name), "its heartbeat holds: %v", f.leases[s.cluster.Name].Spec.RenewTime)
}

// declaredLost: an admin says so, and the last heartbeat is the one that the admin has seen.
func declaredLost(f *snapshot, s *reportedCondition) string {
	d, last := s.cluster.Spec.DeclaredLost, f.leases[s.cluster.Name].Spec.RenewTime
	return reasonUnless(d != nil && last != nil && last.Equal(&d.LastHeartbeat), "it was declared lost by %+v, and last reported at %v", d, last)
}

func reportedSince(f *snapshot, s *reportedCondition) string {
	d, last := s.cluster.Spec.DeclaredLost, f.leases[s.cluster.Name].Spec.RenewTime
	return reasonUnless(d != nil && last != nil && !last.Equal(&d.LastHeartbeat), "it was declared lost by %+v, and last reported at %v", d, last)
}

func drained(f *snapshot, s *reportedCondition) string {
	n := f.countRemaining(s.cluster.Name) - 3*f.countHarmless(s.cluster.Name)
	return reasonUnless(n <= 0, "%d Assignments, Works and records of it are left", n)
}

func draining(f *snapshot, s *reportedCondition) string {
	drains := s.cluster.Spec.Drain != nil && s.cluster.Spec.Drain.Mode == v1alpha1.DrainMove
	if !drains || f.countRemaining(s.cluster.Name) == 0 {
		return "it is not to be drained, or nothing of it is left"
	}
	targets, progress := int32(len(f.assignmentsIn(s.cluster.Name))), s.cluster.Status.Drain
	addsUp := func(d *v1alpha1.DrainStatus) bool {
		return d.Left == targets && d.Moving+d.Waiting+d.Blocked+d.Staying == targets
	}
	return reasonUnless(progress == nil || addsUp(progress),
		"%d Assignments have it as target, and the progress is %+v", targets, progress)
}

func noReport(f *snapshot, s *reportedCondition) string {
	return reasonUnless(!f.isAlive(s.cluster.Name) || f.remainingRecords(s.cluster.Name) == "", "its heartbeat holds, and counts its records")
}

func valid(f *snapshot, s *reportedCondition) string {
	missing := f.missingClusters(s.choice.Names...)
	return reasonUnless(len(missing) == 0, "it names Clusters that do not exist: %v", missing)
}

func unknownCluster(f *snapshot, s *reportedCondition) string {
	choice := s.choice
	if s.assignment != nil {
		choice = f.clusterChoice(f.sourceObject(s.assignment))
	}
	return reasonUnless(choice != nil && slices.ContainsFunc(f.missingClusters(choice.Names...), func(name v1alpha1.ClusterName) bool {
		return strings.Contains(s.Message, strconv.Quote(string(name)))
	}), "no Cluster that is asked for, and does not exist, is in %q", s.Message)
}

// withSource is a truth that an object at the hub must be there for.
func withSource(is func(*snapshot, *reportedCondition, *unstructured.Unstructured) string) conditionCheck {
	return func(f *snapshot, s *reportedCondition) string {
		if o := f.sourceObject(s.assignment); o != nil {
			return is(f, s, o)
		}
		return "the object is not there any more"
	}
}

// wantedTargets are the targets that are to have the object.
func wantedTargets(a *v1alpha1.Assignment) []v1alpha1.Target {
	return slices.DeleteFunc(slices.Clone(a.Spec.Targets), func(t v1alpha1.Target) bool { return !isWanted(t) })
}

// placedAsAsked: each target is asked for, and replicas that are divided add up.
func placedAsAsked(f *snapshot, s *reportedCondition, o *unstructured.Unstructured) string {
	a, asked, divided, sum := s.assignment, map[v1alpha1.ClusterName]bool{}, false, int64(0)
	for _, c := range f.chosenClusters(o) {
		asked[v1alpha1.ClusterName(c.Name)] = true
	}
	for _, leader := range f.assignments { // what takes it along
		r := a.Spec.Object
		if leader.Namespace == a.Namespace && slices.Contains(leader.Spec.Dependencies, v1alpha1.DependencyReference{Group: r.Group, Kind: r.Kind, Name: r.Name}) {
			for _, t := range leader.Spec.Targets {
				asked[t.Cluster] = true
			}
		}
	}
	keeps := o.GetKind() == "PersistentVolumeClaim" && a.Spec.Decision.Source == "dependency" // its data, whoever needs them
	for _, t := range wantedTargets(a) {
		if !asked[t.Cluster] && !keeps {
			return "nothing asks for it in " + string(t.Cluster)
		}
		if t.RequestedReplicas != nil && t.Replicas != nil {
			divided, sum = true, sum+int64(*t.Replicas)
		}
	}
	if n := desiredReplicas(o); divided && sum != n {
		return fmt.Sprintf("its targets have %d replicas, and %d are desired", sum, n)
	}
	if strings.Contains(s.Message, "it has finished in ") && len(wantedTargets(a)) == 0 {
		return reasonUnless(hasFinished(o), "it has not finished: %v", o.Object["status"])
	}
	return reasonUnless(len(wantedTargets(a)) > 0, "no cluster is to have it")
}

// hasFinished tells whether a Job or a Pod has run to its end.
func hasFinished(o *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return phase == "Succeeded" || phase == "Failed" || slices.ContainsFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["status"] == "True" && (fields["type"] == "Complete" || fields["type"] == "Failed")
	})
}

// runsOnce: what has started in a cluster that the message names is asked for elsewhere, or is no longer there.
func runsOnce(f *snapshot, s *reportedCondition, o *unstructured.Unstructured) string {
	a, source := s.assignment, s.assignment.Spec.Object
	if o.GetKind() != "Job" && o.GetKind() != "Pod" {
		return "it is a " + o.GetKind()
	}
	for _, name := range a.Spec.Decision.StartedIn {
		key := source.Group + "/" + source.Resource + " " + source.Namespace + "/" + source.Name
		chosen := slices.IndexFunc(f.chosenClusters(o), func(c v1alpha1.Cluster) bool { return c.Name == string(name) })
		leaves := chosen < 0 || f.objects[objectLocation{string(name), key}] == nil || !f.isAlive(string(name)) ||
			inventoryEntry{Cluster: f.chosenClusters(o)[chosen]}.drains(nil)
		if leaves && strings.Contains(s.Message, string(name)) {
			return ""
		}
	}
	return fmt.Sprintf("nothing asks for it elsewhere than in %v: %q", a.Spec.Decision.StartedIn, s.Message)
}

// desiredReplicas is how many replicas an object asks for.
func desiredReplicas(o *unstructured.Unstructured) int64 {
	if n, ok := specReplicas(o); ok {
		return n
	}
	return 1
}

// specReplicas is how many replicas an object says that it asks for.
func specReplicas(o *unstructured.Unstructured) (int64, bool) {
	for _, field := range []string{"replicas", "completions", "parallelism"} {
		if n, ok, _ := unstructured.NestedInt64(o.Object, "spec", field); ok {
			return n, true
		}
	}
	return 0, false
}

// noClustersRequested: no cluster is to have it, by the annotation or as it is on its way out.
func noClustersRequested(f *snapshot, s *reportedCondition) string {
	asked, targets := "", wantedTargets(s.assignment)
	if o := f.sourceObject(s.assignment); o != nil {
		asked = fmt.Sprintf("%+v", f.clusterChoice(o))
		if text, annotated := o.GetAnnotations()[v1alpha1.ClustersAnnotation]; annotated && strings.TrimSpace(text) == "" {
			asked = ""
		}
	}
	return reasonUnless(asked == "" && len(targets) == 0, "asked for: %s, to have it: %+v", asked, targets)
}

func noPolicy(f *snapshot, s *reportedCondition, o *unstructured.Unstructured) string {
	choice, stays := f.clusterChoice(o), len(wantedTargets(s.assignment)) > 0
	return reasonUnless(choice == nil && stays, "asked for: %+v, stays somewhere: %t", choice, stays)
}

func noClusterSelected(f *snapshot, _ *reportedCondition, o *unstructured.Unstructured) string {
	choice := f.clusterChoice(o)
	return reasonUnless(choice != nil && len(f.chosenClusters(o)) == 0, "asked for: %+v, and there is a Cluster for it", choice)
}

func policyTie(f *snapshot, _ *reportedCondition, o *unstructured.Unstructured) string {
	_, annotated := o.GetAnnotations()[v1alpha1.ClustersAnnotation]
	found := slices.Sorted(maps.Keys(f.policiesFor(o)))
	return reasonUnless(len(found) > 1 && !annotated, "it is annotated (%t), or selected by one at most: %v", annotated, found)
}

// validAnnotation is what an annotation may be: names, or names with weights.
var validAnnotation = func() *regexp.Regexp {
	const name, weighted = ` *[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])? *`, ` *[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])?=(1000000|[0-9]{1,6}) *`
	return regexp.MustCompile("^( *|" + name + "(," + name + ")*|" + weighted + "(," + weighted + ")*)$")
}()

func invalidAnnotation(f *snapshot, _ *reportedCondition, o *unstructured.Unstructured) string {
	text, annotated := o.GetAnnotations()[v1alpha1.ClustersAnnotation]
	if !annotated {
		return "there is none"
	}
	names := f.clusterChoice(o).Names
	twice := len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names)
	return reasonUnless(twice || !validAnnotation.MatchString(text), "it can be read: %q", text)
}

func volumesRefused(f *snapshot, s *reportedCondition, o *unstructured.Unstructured) string {
	for at, claim := range f.objects {
		if claim == nil || claim.GetKind() != "PersistentVolumeClaim" || claim.GetNamespace() != o.GetNamespace() || !hasTarget(s.assignment, at.cluster) {
			continue
		}
		name, _, _ := strings.Cut(claim.GetName(), "-"+o.GetName()+"-") // of its template, if a StatefulSet made it
		if has := "PersistentVolumeClaim " + name + " has data in " + at.cluster; strings.Contains(s.Message, has+":") || strings.Contains(s.Message, has+", which is lost:") {
			return ""
		}
	}
	return fmt.Sprintf("no target has such a claim: %q", s.Message)
}

func tooManyTargets(f *snapshot, s *reportedCondition) string {
	most := len(f.clusters) + len(s.assignment.Spec.Targets)
	return reasonUnless(most > v1alpha1.MaxTargets, "there are only %d Clusters and targets", most)
}

func assignmentLost(f *snapshot, s *reportedCondition, _ *unstructured.Unstructured) string {
	for _, a := range f.assignments {
		r := a.Spec.Object
		kind := strings.TrimSuffix(r.Kind+"."+r.Group, ".")
		if strings.Contains(s.Message, "Assignment of "+kind+" "+r.Namespace+"/"+r.Name+" is missing") {
			return "it is there: " + a.Name
		}
	}
	return ""
}

// unschedulable: something bounds what some chosen Cluster takes. Of how much that is the message tells.
func unschedulable(f *snapshot, s *reportedCondition, o *unstructured.Unstructured) string {
	bounded := strings.Contains(o.GetAnnotations()[v1alpha1.ClustersAnnotation], "=0")
	for _, spec := range f.policiesFor(o) {
		bounded = bounded || len(spec.Replicas.Max)+len(spec.Replicas.Weights) > 0
	}
	bounded = bounded || s.assignment != nil && len(s.assignment.Spec.Decision.Refusals) > 0
	for _, c := range f.chosenClusters(o) {
		bounded = bounded || c.Status.Room != nil && strings.Contains(s.Message, c.Name+" has room for")
		bounded = bounded || c.Spec.Limits != nil || len(c.Spec.Taints) > 0 || c.Spec.Unschedulable || c.Spec.Drain != nil || c.DeletionTimestamp != nil
	}
	return reasonUnless(bounded, "no Cluster that is asked for has a limit, room, a taint or a drain")
}

func waitingForCluster(f *snapshot, s *reportedCondition, o *unstructured.Unstructured) string {
	return reasonUnless(slices.ContainsFunc(f.chosenClusters(o), func(c v1alpha1.Cluster) bool {
		return !f.isAlive(c.Name) && strings.Contains(s.Message, c.Name)
	}), "each Cluster that is asked for, and named, reports: %q", s.Message)
}

// inTransition tells whether a target is not what it is to be in the end.
func inTransition(t v1alpha1.Target) bool {
	return t.State != v1alpha1.TargetActive || t.RequestedReplicas != nil && t.Replicas != nil && *t.RequestedReplicas != *t.Replicas
}

func moving(_ *snapshot, s *reportedCondition) string {
	return reasonUnless(slices.ContainsFunc(s.assignment.Spec.Targets, inTransition), "nothing is left to do: targets %+v", s.assignment.Spec.Targets)
}

func moved(_ *snapshot, s *reportedCondition) string {
	return reasonUnless(!slices.ContainsFunc(s.assignment.Spec.Targets, inTransition), "targets are on their way: %+v", s.assignment.Spec.Targets)
}

// rendered: each target has a Work with the present object, and as many replicas as are asked.
func rendered(f *snapshot, s *reportedCondition) string {
	o := f.sourceObject(s.assignment)
	for _, t := range s.assignment.Spec.Targets {
		if o == nil || len(f.missingClusters(t.Cluster)) > 0 || t.State != v1alpha1.TargetActive && t.State != v1alpha1.TargetDraining {
			continue // it is to have none
		}
		i := slices.IndexFunc(f.works, func(w v1alpha1.Work) bool { return w.Name == s.assignment.Name && clusterOf(&w) == string(t.Cluster) })
		if i < 0 {
			return string(t.Cluster) + " has no Work"
		}
		w := f.works[i].Spec
		paused := o.GetKind() == "Job" // it stays as it was
		if w.Removal != nil || w.Source.UID != o.GetUID() || w.SourceGeneration != o.GetGeneration() && !paused {
			return fmt.Sprintf("the Work in %s has UID %s, generation %d, removal %v, and the object UID %s, generation %d",
				t.Cluster, w.Source.UID, w.SourceGeneration, w.Removal, o.GetUID(), o.GetGeneration())
		}
		if n, ok, _ := unstructured.NestedInt64(manifest(w.Manifests[0]).Object, "spec", "replicas"); ok && t.RequestedReplicas != nil && n != int64(*t.RequestedReplicas) {
			return fmt.Sprintf("the Work in %s has %d replicas, and %d are asked", t.Cluster, n, *t.RequestedReplicas)
		}
	}
	return ""
}

func tooLarge(f *snapshot, _ *reportedCondition, o *unstructured.Unstructured) string {
	n := len(asJSON(o.Object))
	return reasonUnless(n > v1alpha1.MaxManifestBytes || len(f.customizations) > 0, "it has %d bytes, and nothing is added on its way", n)
}

func invalidRule(f *snapshot, s *reportedCondition) string {
	return reasonUnless(slices.ContainsFunc(f.customizations, func(c v1alpha1.Customization) bool {
		return strings.Contains(s.Message, "Customization "+c.Namespace+"/"+c.Name+":") || strings.Contains(s.Message, "Customizations must not")
	}), "no Customization that exists is in %q", s.Message)
}

func tokenStays(_ *snapshot, _ *reportedCondition, o *unstructured.Unstructured) string {
	return reasonUnless(o.GetKind() == "Secret" && o.Object["type"] == "kubernetes.io/service-account-token", "it is no ServiceAccount's token")
}
