// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/apportion"
)

// Plan is the clusters that an object is assigned to once all moves have ended.
type Plan struct {
	// Targets are the clusters with their replicas (0 where replicas are not Divided).
	Targets map[string]int64
	// Divided is true when the clusters share the replicas; else each cluster has the object whole.
	Divided bool
	// Message names what could not be placed as the policy asks, and why; empty when all is placed.
	Message string
	// Reason belongs to Message: Unschedulable, WaitingForCluster or RunsOnce.
	Reason string
	// Note says why an object that runs once has no targets, though all is as the policy asks.
	Note string
	// LacksRoom reports that a cause of Message is a cluster with too little room.
	LacksRoom bool
}

// Plan decides where the object runs. Replicas without room elsewhere stay where they are. After an
// error, which is of the type *Error, the object stays where it is.
func (p *EffectivePolicy) Plan(in PlanInput) (Plan, error) {
	if p.Source == v1alpha1.SourceAnnotation && len(p.Spec.Clusters.Names) == 0 {
		return Plan{Targets: map[string]int64{}}, nil // the order to remove it everywhere
	}
	choice := clusterChoice{p, in}
	selected, err := choice.candidates()
	if err != nil {
		return Plan{}, err
	}
	if len(in.Started) > 0 {
		return p.planStarted(in, selected)
	}
	if len(selected) == 0 {
		return Plan{}, &Error{
			Reason: v1alpha1.ReasonNoClusterSelected, Object: p.Source, Field: "spec.clusters",
			Message: "no Cluster that is accepted is selected: the object stays where it is. To remove it, run kubectl patchbay remove",
		}
	}
	usable := choice.sortCandidates(selected)
	var result allocation
	switch {
	case p.Spec.Replicas.Mode == v1alpha1.ReplicasSingle:
		result = chooseOne(in, usable)
	case p.divides(in):
		if result, err = p.divideReplicas(in, choice.limitToCount(usable)); err != nil {
			return Plan{}, err
		}
	default:
		result = p.chooseAll(in, choice.limitToCount(usable), selected)
	}
	if len(result.targets) == 0 { // only an order removes it everywhere
		result.targets = atZero(in.Assigned)
		result.unplaced = cmp.Or(result.unplaced, "no cluster takes it")
	}
	plan := result.plan(unavailableReasons(selected))
	if plan.Message == "" {
		plan.Message, plan.Reason = p.lostMessage(in, selected, plan.Targets)
	}
	plan.Targets, err = p.keepVolumes(in, plan, selected)
	return plan, err
}

// divides tells whether the clusters share the replicas.
func (p *EffectivePolicy) divides(in PlanInput) bool {
	return p.Spec.Replicas.Mode == v1alpha1.ReplicasDivide && in.Replicas != nil
}

// allocation is the result of one replica mode.
type allocation struct {
	targets map[string]int64
	divided bool
	// unplaced is what could not be placed as the policy asks; empty when all is placed.
	unplaced string
	// fullClusters are the clusters without enough room, with their limits.
	fullClusters []string
	// allReported is true when no cluster that does not report is a cause of unplaced.
	allReported bool
}

// plan adds the causes of what is unplaced. unavailable are the selected clusters that take nothing.
func (a allocation) plan(unavailable []string) Plan {
	plan := Plan{Targets: a.targets, Divided: a.divided, Message: a.unplaced}
	if a.unplaced == "" {
		return plan
	}
	if a.allReported {
		unavailable = nil
	}
	plan.Reason, plan.LacksRoom = v1alpha1.ReasonUnschedulable, len(a.fullClusters) > 0
	if len(unavailable) > 0 {
		plan.Reason = v1alpha1.ReasonWaitingForCluster
	}
	if causes := slices.Concat(unavailable, a.fullClusters); len(causes) > 0 {
		plan.Message += ": " + strings.Join(causes, ", ")
	}
	return plan
}

// atZero returns clusters as targets without replicas.
func atZero(clusters map[string]int64) map[string]int64 {
	targets := make(map[string]int64, len(clusters))
	for name := range clusters {
		targets[name] = 0
	}
	return targets
}

// Replaces tells whether other clusters get what a lost one has. An object that must run in one cluster at a time
// stays unless an admin has declared the cluster lost: the cluster may still run it.
func (p *EffectivePolicy) Replaces(c *Cluster) bool {
	return c.DeclaredLost || c.Lost && p.Spec.Replicas.Mode != v1alpha1.ReplicasSingle && p.Spec.Move.Mode != v1alpha1.BreakBeforeMake
}

// lostMessage returns the message and its reason for targets that stay in a silent cluster, although the policy, or an
// admin, takes it for lost; "" for none.
func (p *EffectivePolicy) lostMessage(in PlanInput, selected []candidate, targets map[string]int64) (message, reason string) {
	for _, c := range selected {
		_, chosen := targets[c.Name]
		claim := in.VolumeClaims[c.Name]
		switch {
		case !chosen || !c.Lost && c.LossHeld == "":
		case claim != "" && p.Replaces(c.Cluster):
			return fmt.Sprintf("PersistentVolumeClaim %s has data in %s, which is lost: no other cluster starts the object without its data. "+
				"It stays there. To start it elsewhere with empty volumes, delete it and create it again under another name", claim, c.Name), v1alpha1.ReasonVolumesRefused
		case c.Lost && !p.Replaces(c.Cluster):
			return fmt.Sprintf("%s does not report, and may still run the object, which must not run in two clusters at a time: "+
				"offline.assumeLostAfter does not replace it, and it stays there until %s reports. If %s runs nothing any more, run "+
				"kubectl patchbay cluster declare-lost %s", c.Name, c.Name, c.Name, c.Name), v1alpha1.ReasonWaitingForCluster
		case c.LossHeld != "" && !c.Lost:
			return fmt.Sprintf("%s does not report, and is not assumed lost: %s. Find the cause at the hub or in the network; if %s runs "+
				"nothing any more, run kubectl patchbay cluster declare-lost %s", c.Name, c.LossHeld, c.Name, c.Name), v1alpha1.ReasonWaitingForCluster
		}
	}
	return "", ""
}

// chooseOne chooses the cluster that has the object, else the first with room.
func chooseOne(in PlanInput, usable []candidate) allocation {
	for _, c := range usable {
		if _, assigned := in.Assigned[c.Name]; assigned && c.eligibility >= mayStay {
			result := allocation{targets: map[string]int64{c.Name: 0}}
			if c.unavailableReason() != "" && in.Unconfirmed[c.Name] {
				result.unplaced = c.Name + " may not have it as it is"
			}
			return result
		}
	}
	var result allocation
	for _, c := range usable {
		if c.eligibility != eligible {
			continue
		}
		full := shortOfRoom(in, c)
		if full == "" {
			result.targets = map[string]int64{c.Name: 0}
			return result
		}
		result.fullClusters = append(result.fullClusters, full)
	}
	return result
}

// chooseAll chooses all usable clusters with room. selected are the candidates before the count was
// applied: those that take nothing are missing, unless the policy has a count.
func (p *EffectivePolicy) chooseAll(in PlanInput, usable, selected []candidate) allocation {
	result := allocation{targets: map[string]int64{}}
	for _, c := range usable {
		if c.eligibility == mustLeave {
			continue
		}
		if full := shortOfRoom(in, c); full != "" {
			result.fullClusters = append(result.fullClusters, full)
			continue
		}
		result.targets[c.Name] = 0
	}
	missing := slices.ContainsFunc(selected, func(c candidate) bool {
		_, chosen := result.targets[c.Name]
		return c.unavailableReason() != "" && !chosen
	})
	switch {
	case missing && p.Spec.Clusters.Count == nil:
		result.unplaced = "some clusters do not have it yet"
	case len(result.fullClusters) > 0:
		result.unplaced, result.allReported = "some clusters have no room for it", true
	}
	return result
}

// shortOfRoom names the limit of a cluster without room for the whole object; "" when it has room, or
// has the object already.
func shortOfRoom(in PlanInput, c candidate) string {
	if _, assigned := in.Assigned[c.Name]; assigned {
		return ""
	}
	needed := int64(1)
	if in.Replicas != nil {
		needed = *in.Replicas
	}
	if room, why := in.Capacity(c.Name); room != nil && *room < needed {
		return roomText(c.Name, *room, why)
	}
	return ""
}

func roomText(cluster string, room int64, why string) string {
	return fmt.Sprintf("%s has room for %d (%s)", cluster, room, why)
}

// divideReplicas divides the replicas between clusters. A cluster that must be left counts as full, and
// its replicas without a place elsewhere stay.
func (p *EffectivePolicy) divideReplicas(in PlanInput, usable []candidate) (allocation, error) {
	result := allocation{targets: map[string]int64{}, divided: true}
	rows := make([]apportion.Cluster, 0, len(usable))
	replaced := isReplaced(in)
	for _, c := range usable {
		row, full := p.divisionInput(in, c)
		if replaced && in.Leaving[c.Name] || in.Returned[c.Name] { // it takes nothing back
			row.Current = 0
		}
		rows = append(rows, row)
		if full != "" {
			result.fullClusters = append(result.fullClusters, full)
		}
	}
	p.weighByRoom(rows)
	division, err := apportion.Divide(*in.Replicas, rows)
	if err != nil {
		return allocation{}, &Error{Reason: v1alpha1.ReasonInvalidReplicas, Object: p.Source, Field: "spec.replicas", Message: err.Error()}
	}
	for _, s := range division.Shares {
		if s.Replicas > 0 {
			result.targets[s.Name] = s.Replicas
		}
	}
	for _, c := range usable { // that it runs none there is no order to remove it
		if _, assigned := in.Assigned[c.Name]; assigned && in.Refused[c.Name] && !in.BeingRemoved[c.Name] && c.eligibility >= mayStay {
			result.targets[c.Name] += 0
		}
	}
	if *in.Replicas == 0 {
		result.targets = placeZeroReplicas(in, usable)
	}
	if division.Unplaced > 0 {
		result.unplaced = fmt.Sprintf("%d of %d replicas have no room", division.Unplaced, *in.Replicas)
		result.targets = keepUnplaced(in, result.targets, division.Unplaced)
	}
	return result, nil
}

// isReplaced tells whether the other clusters run all replicas of those that have begun to lose theirs.
func isReplaced(in PlanInput) bool {
	left := *in.Replicas
	for name, n := range in.Running {
		if !in.Leaving[name] && !in.BeingRemoved[name] {
			left -= n
		}
	}
	return left <= 0
}

// divisionInput returns one cluster of the division, and its limit in words if it has one.
func (p *EffectivePolicy) divisionInput(in PlanInput, c candidate) (row apportion.Cluster, full string) {
	r := p.Spec.Replicas
	row = apportion.Cluster{Name: c.Name, Weight: 1, Min: int64(r.Min[c.Name])}
	if len(r.Weights) > 0 {
		row.Weight = int64(r.Weights[c.Name])
	}
	if limit, ok := r.Max[c.Name]; ok {
		row.Max = new(int64(limit))
	}
	if in.PolicyUnchanged {
		row.Current = in.Assigned[c.Name]
	}
	room, why := in.Capacity(c.Name)
	switch {
	case c.eligibility == mustLeave:
		room, why = new(int64(0)), "it is being emptied"
	case c.eligibility == mayStay && (room == nil || *room > in.Assigned[c.Name]):
		if room, why = new(in.Assigned[c.Name]), "it takes nothing new"; c.unavailableReason() != "" {
			why = "it does not report"
		}
	}
	if row.Capacity = room; room != nil {
		full = roomText(c.Name, *room, why)
	}
	return row, full
}

// weighByRoom weighs the clusters of a division by their room, if the policy divides by it.
func (p *EffectivePolicy) weighByRoom(rows []apportion.Cluster) {
	if p.Spec.Replicas.By != v1alpha1.DivideAvailable || len(p.Spec.Replicas.Weights) > 0 { // an annotation may have numbers
		return
	}
	most := int64(0)
	for _, row := range rows {
		if row.Capacity != nil {
			most = max(most, *row.Capacity)
		}
	}
	for i := range rows {
		weight := max(1, most)
		if rows[i].Capacity != nil {
			weight = *rows[i].Capacity
		}
		rows[i].Weight = min(weight, apportion.MaxWeight)
	}
}

// placeZeroReplicas keeps an object without replicas where it is, or assigns it to the first cluster.
func placeZeroReplicas(in PlanInput, usable []candidate) map[string]int64 {
	if slices.ContainsFunc(usable, func(c candidate) bool { return c.eligibility == eligible }) {
		usable = slices.DeleteFunc(slices.Clone(usable), func(c candidate) bool { return c.eligibility == mustLeave })
	}
	targets := map[string]int64{}
	for i, c := range usable {
		if _, assigned := in.Assigned[c.Name]; assigned || i == 0 && len(in.Assigned) == 0 {
			targets[c.Name] = 0
		}
	}
	if len(targets) == 0 && len(usable) > 0 {
		targets[usable[0].Name] = 0
	}
	return targets
}

// keepUnplaced returns the targets with replicas that have no room elsewhere left where they are.
func keepUnplaced(in PlanInput, targets map[string]int64, unplaced int64) map[string]int64 {
	targets = maps.Clone(targets)
	for _, name := range slices.Sorted(maps.Keys(in.Assigned)) {
		more := min(unplaced, max(0, in.Assigned[name]-targets[name]))
		if more > 0 {
			targets[name] += more
			unplaced -= more
		}
	}
	if len(targets) == 0 { // it has no replicas yet, and keeps its place
		return atZero(in.Assigned)
	}
	return targets
}

// keepVolumes returns the plan's targets and the clusters that have volumes of the object, which get
// it without replicas where there are too few. A plan that moves the object, or replicas, away from
// its volumes is an error.
func (p *EffectivePolicy) keepVolumes(in PlanInput, plan Plan, selected []candidate) (map[string]int64, error) {
	targets := maps.Clone(plan.Targets)
	growsElsewhere := false // a cluster without volumes gets replicas
	for name, n := range targets {
		growsElsewhere = growsElsewhere || n > in.Assigned[name] && in.VolumeClaims[name] == ""
	}
	for _, name := range slices.Sorted(maps.Keys(in.VolumeClaims)) {
		n, ok := targets[name]
		moved := plan.Divided && n < in.Assigned[name] && growsElsewhere
		if ok && !moved {
			continue
		}
		if !moved && plan.Divided && slices.ContainsFunc(selected, func(c candidate) bool { return c.Name == name }) {
			targets[name] = 0
			continue
		}
		if why := p.refuseVolumes(in, plan, name); why != "" {
			return targets, &Error{
				Reason: v1alpha1.ReasonVolumesRefused, Object: p.Source, Field: "spec.volumes",
				Message: fmt.Sprintf("PersistentVolumeClaim %s has data in %s: the object stays where it is: %s", in.VolumeClaims[name], name, why),
			}
		}
	}
	return targets, nil
}

// refuseVolumes returns why the volumes of the object do not leave a cluster with it; "" when they do. The object must
// go to one other cluster as a whole.
func (p *EffectivePolicy) refuseVolumes(in PlanInput, plan Plan, cluster string) string {
	switch _, stays := plan.Targets[cluster]; {
	case p.Spec.Volumes != v1alpha1.VolumesTransfer:
		return "volumes move only with volumes: Transfer"
	case len(in.VolumeClaims) > 1:
		return "it has volumes in several clusters, and only the volumes of one can move"
	case stays || len(plan.Targets) != 1:
		return "volumes move only with the whole object, to one cluster"
	}
	for to := range plan.Targets {
		return in.VolumeRefusal(cluster, to)
	}
	return ""
}

// AllowsOnly reports whether the policy allows no other cluster than this one.
func (p *EffectivePolicy) AllowsOnly(in PlanInput, cluster string) bool {
	allowed, err := clusterChoice{p, in}.candidates()
	return err == nil && len(allowed) == 1 && allowed[0].Name == cluster
}
