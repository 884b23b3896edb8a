// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

// volumeSource is a volume that one cluster may attach.
func volumeSource(modes ...string) *v1alpha1.VolumeSource {
	if len(modes) == 0 {
		modes = []string{"ReadWriteOnce"}
	}
	return &v1alpha1.VolumeSource{Driver: "csi.example.com", Handle: "volume-1", AccessModes: modes}
}

// volumePolicy is a policy that selects one cluster, and transfers volumes.
func volumePolicy(cluster string) *policy.EffectivePolicy {
	p := &policy.EffectivePolicy{Source: "Placement shop/all", UID: "policy", NamesClusters: true}
	p.Spec.Clusters.Names, p.Spec.Volumes = []v1alpha1.ClusterName{v1alpha1.ClusterName(cluster)}, v1alpha1.VolumesTransfer
	p.Spec.Replicas.Mode = v1alpha1.ReplicasSingle
	return p
}

// claimUser is a Deployment that uses the claim, by the states of its targets in east and west.
func claimUser(name string, east, west v1alpha1.TargetState) scope.ClaimUser {
	u := scope.ClaimUser{Key: kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: name}}
	for _, t := range []v1alpha1.Target{{Cluster: "east", State: east}, {Cluster: "west", State: west}} {
		if t.State != "" {
			u.Targets = append(u.Targets, t)
		}
	}
	return u
}

// claimScope is a Scope of a claim with a volume in east. West shares the storage.
func claimScope(source *v1alpha1.VolumeSource, users ...scope.ClaimUser) *scope.Scope {
	gk := schema.GroupKind{Kind: "PersistentVolumeClaim"}
	s := &scope.Scope{
		Key: kinds.Key{GroupKind: gk, Namespace: "shop", Name: "data"}, Now: time.Unix(10_000, 0), Assignment: &v1alpha1.Assignment{},
		Object: &unstructured.Unstructured{Object: map[string]any{}}, Clusters: map[string]*v1alpha1.Cluster{},
		Works: map[string]*v1alpha1.Work{"east": {}}, Reports: map[string]scope.WorkReport{},
		RequiredIn: map[string]bool{}, WantedIn: map[string]bool{},
	}
	s.Object.SetGroupVersionKind(gk.WithVersion("v1"))
	s.Object.SetUID("claim")
	for _, name := range []string{"east", "west"} {
		s.Clusters[name] = &v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.ClusterSpec{Accepted: true, Properties: map[string]v1alpha1.PropertyValue{"storage.csi.example.com.domain": "rack-1"}},
			Status:     v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}},
		}
	}
	s.Assignment.UID, s.Assignment.Spec.Targets = "stored", []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}}
	for _, u := range users {
		for _, t := range u.Targets {
			s.RequiredIn[string(t.Cluster)] = true
		}
		for _, name := range wantedIn(u) {
			s.WantedIn[name] = true
		}
	}
	s.Claims = map[string]scope.Claim{"data": {
		Targets: s.Assignment.Spec.Targets, Ordered: true, Users: users,
		Volumes: map[string]*v1alpha1.VolumeReport{"east": {Source: source}},
	}}
	return s
}

func assigned(t *testing.T, s *scope.Scope, p *policy.EffectivePolicy) Decision {
	t.Helper()
	d, err := Assign(s, scope.Resolution{Policy: p}, s.Assignment, nil, limits.NewCapacity(time.Now), limits.NewDrains())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A claim with data in one cluster does not begin empty in another one, because one of its users is there. An object
// that a user places in several clusters has a claim in each.
func TestClaimOfSeveralUsers(t *testing.T) {
	t.Parallel()
	const active, pending, draining = v1alpha1.TargetActive, v1alpha1.TargetPending, v1alpha1.TargetDraining
	for name, tc := range map[string]struct {
		reason string
		users  []scope.ClaimUser
		want   string
		home   string
		placed string // reason of the condition
	}{
		"one moves":        {"The other one keeps the data.", []scope.ClaimUser{claimUser("a", "", pending), claimUser("b", active, "")}, "east", "", v1alpha1.ReasonVolumesRefused},
		"one is leaving":   {"It has not left.", []scope.ClaimUser{claimUser("a", draining, pending), claimUser("b", active, "")}, "east", "", v1alpha1.ReasonVolumesRefused},
		"all move":         {"The volume goes with them.", []scope.ClaimUser{claimUser("a", draining, pending), claimUser("b", draining, pending)}, "east west", "west", ""},
		"one is in both":   {"It has a claim in each.", []scope.ClaimUser{claimUser("a", active, pending), claimUser("b", active, "")}, "east west", "", ""},
		"both are in east": {"Nothing moves.", []scope.ClaimUser{claimUser("a", active, ""), claimUser("b", active, "")}, "east", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := claimScope(volumeSource(), tc.users...)
			d := assigned(t, s, volumePolicy("east"))
			if got := strings.Join(slices.Sorted(maps.Keys(d.Replicas)), " "); got != tc.want || d.VolumeHome != tc.home || d.ShortfallReason != tc.placed {
				t.Errorf("%s\ngot %q, home %q, %q: %s\nwant %q, home %q, %q", tc.reason, got, d.VolumeHome, d.ShortfallReason, d.Shortfall, tc.want, tc.home, tc.placed)
			}
		})
	}
}

// An object does not leave its volume behind for another object, and does not wait for one that goes with it.
func TestVolumeRefusalOfSharedClaim(t *testing.T) {
	t.Parallel()
	with := func(u scope.ClaimUser, p *policy.EffectivePolicy) scope.ClaimUser {
		u.Policy = p
		return u
	}
	refuse := volumePolicy("west")
	refuse.Spec.Volumes = v1alpha1.VolumesRefuse
	job := with(claimUser("job", v1alpha1.TargetActive, ""), volumePolicy("west"))
	job.GroupKind = schema.GroupKind{Group: "batch", Kind: "Job"}
	const active, draining, pending = v1alpha1.TargetActive, v1alpha1.TargetDraining, v1alpha1.TargetPending
	for name, tc := range map[string]struct {
		reason string
		other  scope.ClaimUser
		want   string
	}{
		"stays":       {"It would be without its data.", with(claimUser("b", active, ""), volumePolicy("east")), "Deployment.apps shop/b uses it, too, and may stay in east"},
		"no policy":   {"It stays.", claimUser("b", active, ""), "shop/b uses it, too"},
		"goes, too":   {"Both were selected together, and neither has begun.", with(claimUser("b", active, ""), volumePolicy("west")), ""},
		"refuses":     {"Its own move is refused.", with(claimUser("b", active, ""), refuse), "shop/b uses it, too"},
		"runs once":   {"A Job does not move.", job, "shop/job uses it, too"},
		"has begun":   {"It leaves.", with(claimUser("b", draining, pending), volumePolicy("west")), ""},
		"the same":    {"It is the object itself.", claimUser("a", active, ""), ""},
		"is in other": {"It keeps nothing in east.", claimUser("b", "", active), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := claimScope(volumeSource(), tc.other)
			s.Key = claimUser("a", "", "").Key
			got := volumeRefusal(s, "east", "west")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// An object starts where the volume of its claim is, and where no volume moves.
func TestHasVolume(t *testing.T) {
	t.Parallel()
	moving := func(state v1alpha1.VolumeState, modes ...string) scope.Claim {
		return scope.Claim{Ordered: true, Transfer: &v1alpha1.VolumeTransfer{Source: *volumeSource(modes...), From: "east", To: "west", State: state}}
	}
	inEast := scope.Claim{Targets: []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}}}
	ordered := inEast
	ordered.Ordered = true
	for name, tc := range map[string]struct {
		reason string
		claim  scope.Claim
		want   string
	}{
		"no volume that moves": {"Each cluster has its own.", inEast, "east west south"},
		"moves":                {"The claim does not begin empty elsewhere, also before its report.", ordered, "east"},
		"on its way":           {"No cluster may attach it.", moving(v1alpha1.VolumeDetaching), ""},
		"bound":                {"It has moved.", moving(v1alpha1.VolumeBound), "west"},
		"shared, scaling":      {"The first cluster still has it.", moving(v1alpha1.VolumeScaling, "ReadWriteMany"), "east"},
		"shared, bound":        {"A user may change his mind.", moving(v1alpha1.VolumeBound, "ReadWriteMany"), "east west"},
		"shared, discarding":   {"The first cluster is to lose it.", moving(v1alpha1.VolumeDiscarding, "ReadWriteMany"), "west"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, cluster := range []string{"east", "west", "south"} {
				if hasVolume(tc.claim, cluster) {
					got = append(got, cluster)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s\ngot %v, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A claim that moves by itself is in both clusters for a while: that is no mistake, and a user may take it back.
func TestClaimInTransferIsPlanned(t *testing.T) {
	t.Parallel()
	for _, state := range []v1alpha1.VolumeState{v1alpha1.VolumeBinding, v1alpha1.VolumeBound, v1alpha1.VolumeDiscarding} {
		for _, home := range []string{"west", "east"} {
			s := claimScope(volumeSource())
			s.Assignment.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}, {Cluster: "west", State: v1alpha1.TargetActive}}
			s.Assignment.Spec.Volume = &v1alpha1.VolumeTransfer{ClaimUID: "claim", Source: *volumeSource(), From: "east", To: "west", State: state}
			d := assigned(t, s, volumePolicy(home))
			if d.Mistake != nil || d.VolumeHome != home || len(d.Replicas) != 2 {
				t.Errorf("%s, selected %s: got home %q in %v, mistake %v; want no mistake and both clusters", state, home, d.VolumeHome, d.Replicas, d.Mistake)
			}
		}
	}
}

// transferring returns a Scope and a copy of the Assignment of a claim whose volume is on its way from east to west.
func transferring(state v1alpha1.VolumeState, source *v1alpha1.VolumeSource, users ...scope.ClaimUser) (*scope.Scope, *v1alpha1.Assignment) {
	s := claimScope(source, users...)
	s.Assignment.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}, {Cluster: "west", State: v1alpha1.TargetActive}}
	s.Assignment.Spec.Volume = &v1alpha1.VolumeTransfer{ClaimUID: "claim", Source: *source, From: "east", To: "west", State: state}
	return s, s.Assignment.DeepCopy()
}

// keepReport is a Work whose agent has found nothing to keep.
func keepReport(unmovable string) *v1alpha1.Work {
	w := &v1alpha1.Work{}
	w.Spec.Volume = &v1alpha1.VolumeOrder{Action: v1alpha1.VolumeKeep}
	w.Status.Manifests = []v1alpha1.ManifestStatus{{Volume: &v1alpha1.VolumeReport{Unmovable: unmovable}}}
	return w
}

func TestTransferWithLostCluster(t *testing.T) {
	t.Parallel()
	declare := func(name string) func(*scope.Scope) {
		return func(s *scope.Scope) { s.DeclaredLost = map[string]bool{name: true} }
	}
	remove := func(name string) func(*scope.Scope) {
		return func(s *scope.Scope) {
			delete(s.Clusters, name)
			delete(s.Works, name)
			s.GoneWorks = map[string]bool{name: true}
		}
	}
	deleted := func(s *scope.Scope) { s.Object.SetDeletionTimestamp(&metav1.Time{Time: s.Now}) }
	ordered := func(s *scope.Scope) {
		s.Works["west"] = &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Removal: &v1alpha1.Removal{}}}
	}
	for name, tc := range map[string]struct {
		reason string
		state  v1alpha1.VolumeState
		change []func(*scope.Scope)
		home   string
		want   v1alpha1.VolumeState
		west   v1alpha1.TargetState
	}{
		"silent":               {"It may attach the volume.", v1alpha1.VolumeDetaching, nil, "west", v1alpha1.VolumeDetaching, v1alpha1.TargetPending},
		"declared":             {"An admin knows that it does not.", v1alpha1.VolumeDetaching, []func(*scope.Scope){declare("east")}, "west", v1alpha1.VolumeReleased, v1alpha1.TargetPending},
		"out of the inventory": {"It may run unseen.", v1alpha1.VolumeDetaching, []func(*scope.Scope){remove("east")}, "west", v1alpha1.VolumeDetaching, v1alpha1.TargetPending},
		"returning":            {"It cannot report any more.", v1alpha1.VolumeReturning, []func(*scope.Scope){remove("east")}, "east", volumes.None, ""},
		"missing": {"Another client has deleted the volume: nothing is left to give back.", v1alpha1.VolumeReturning, []func(*scope.Scope){func(s *scope.Scope) {
			s.Works["east"] = keepReport("PersistentVolumeClaim shop/data has no volume yet")
		}}, "east", volumes.None, ""},
		"not reported":       {"The fence may still be there.", v1alpha1.VolumeReturning, []func(*scope.Scope){func(s *scope.Scope) { s.Works["east"] = keepReport("") }}, "east", v1alpha1.VolumeReturning, ""},
		"other, not ordered": {"It must remove its claim when it returns.", v1alpha1.VolumeUndoing, []func(*scope.Scope){declare("west"), func(s *scope.Scope) { s.Works["west"] = &v1alpha1.Work{} }}, "east", v1alpha1.VolumeUndoing, v1alpha1.TargetRemoving},
		"other":              {"The order stays for its return.", v1alpha1.VolumeUndoing, []func(*scope.Scope){declare("west"), ordered}, "east", v1alpha1.VolumeReturning, v1alpha1.TargetRemoving},
		"other, gone":        {"It may run unseen.", v1alpha1.VolumeWithdrawing, []func(*scope.Scope){remove("west")}, "east", v1alpha1.VolumeWithdrawing, v1alpha1.TargetActive},
		"deleted, gone":      {"A user wants the claim nowhere.", v1alpha1.VolumeWithdrawing, []func(*scope.Scope){remove("west"), deleted}, "east", v1alpha1.VolumeUndoing, v1alpha1.TargetRemoving},
		"discarding":         {"It may return with the reclaim policy Delete.", v1alpha1.VolumeDiscarding, []func(*scope.Scope){declare("east")}, "west", v1alpha1.VolumeDiscarding, v1alpha1.TargetActive},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, a := transferring(tc.state, volumeSource())
			for _, change := range tc.change {
				change(s)
			}
			m := Migrate(s, a, Decision{VolumeHome: tc.home})
			got := volumes.None
			if a.Spec.Volume != nil {
				got = a.Spec.Volume.State
			}
			west, _ := limits.TargetOf(m.Targets, "west")
			if got != tc.want || west.State != tc.west {
				t.Errorf("%s\ngot %q, west %q; want %q, west %q", tc.reason, got, west.State, tc.want, tc.west)
			}
		})
	}
}

// An object that awaits a volume in the first cluster was not sent there, and does not hold the volume.
func TestAwaitingUserDoesNotHoldVolume(t *testing.T) {
	t.Parallel()
	s := claimScope(volumeSource(), claimUser("a", "", v1alpha1.TargetActive), claimUser("b", v1alpha1.TargetPending, ""))
	if isUsedIn(s, "east", false) {
		t.Error("isUsedIn: got true for an object that awaits the volume, want false")
	}
	if !isUsedIn(s, "east", true) {
		t.Error("isUsedIn: got false for an object that may start with a shared volume, want true")
	}
	if s.Claims["data"].Users[1].Targets[0].State = v1alpha1.TargetDraining; !isUsedIn(s, "east", false) {
		t.Error("isUsedIn: got false for an object that leaves, want true")
	}
}

// Only a step that takes an object from a volume which one cluster may attach breaks first.
func TestMovesExclusiveVolume(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		source *v1alpha1.VolumeSource
		in     []string
		want   bool
	}{
		"leaves":         {"The volume goes with it.", volumeSource(), []string{"west"}, true},
		"splits":         {"Both clusters keep it, and their claims.", volumeSource(), []string{"east", "west"}, false},
		"leaves another": {"West has no volume of it.", volumeSource(), []string{"east"}, false},
		"shared":         {"Two clusters may attach it.", volumeSource("ReadWriteMany"), []string{"west"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := claimScope(tc.source)
			s.Key = claimUser("a", "", "").Key
			s.Assignment.Spec.Targets = append(s.Assignment.Spec.Targets, v1alpha1.Target{Cluster: "west", State: v1alpha1.TargetActive})
			d := Decision{Policy: volumePolicy("west"), Replicas: map[string]int64{}}
			for _, name := range tc.in {
				d.Replicas[name] = 1
			}
			if got := migrationInput(s, d).BreakBeforeMake; got != tc.want {
				t.Errorf("%s\nBreakBeforeMake: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// What an object awaits names the object that keeps the volume elsewhere.
func TestAwaitVolumesNamesUser(t *testing.T) {
	t.Parallel()
	s := claimScope(volumeSource(), claimUser("a", "", v1alpha1.TargetPending), claimUser("b", v1alpha1.TargetActive, ""))
	s.Key = claimUser("a", "", "").Key
	in := migration.Input{Targets: []migration.Target{{Cluster: "west", Wanted: true, State: migration.Pending}}}
	want := "the volume of PersistentVolumeClaim data must come first; Deployment.apps shop/b uses it in east"
	if !awaitVolumes(s, &in) || in.Targets[0].Awaits != want {
		t.Errorf("awaitVolumes: got %q, want %q", in.Targets[0].Awaits, want)
	}
}
