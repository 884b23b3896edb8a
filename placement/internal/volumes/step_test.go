// SPDX-License-Identifier: Apache-2.0

package volumes_test

import (
	"testing"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

// What an admin says of a cluster that is gone stands for its reports, as far as no data depends on them.
func TestStepWithLostCluster(t *testing.T) {
	t.Parallel()
	lost, absent := volumes.Side{Lost: true}, volumes.Side{Absent: true}
	for name, tc := range map[string]struct {
		reason string
		in     volumes.Input
		want   v1alpha1.VolumeState
	}{
		"no report":               {"The first cluster may attach the volume.", volumes.Input{State: v1alpha1.VolumeDetaching}, v1alpha1.VolumeDetaching},
		"lost, needed":            {"Its objects do not run any more.", volumes.Input{State: v1alpha1.VolumeScaling, From: volumes.Side{Lost: true, Needed: true}}, v1alpha1.VolumeDetaching},
		"lost, detaching":         {"It attaches nothing any more.", volumes.Input{State: v1alpha1.VolumeDetaching, From: lost}, v1alpha1.VolumeReleased},
		"lost, released":          {"It does not go back for a report.", volumes.Input{State: v1alpha1.VolumeReleased, From: lost}, v1alpha1.VolumeBinding},
		"absent, detaching":       {"It may run unseen.", volumes.Input{State: v1alpha1.VolumeDetaching, From: absent}, v1alpha1.VolumeDetaching},
		"lost, returning":         {"It has nothing to give back.", volumes.Input{State: v1alpha1.VolumeReturning, From: lost}, volumes.None},
		"absent, returning":       {"No other cluster has the volume.", volumes.Input{State: v1alpha1.VolumeReturning, From: absent}, volumes.None},
		"lost, discarding":        {"It may return with the reclaim policy Delete.", volumes.Input{State: v1alpha1.VolumeDiscarding, From: lost}, v1alpha1.VolumeDiscarding},
		"absent, discarding":      {"It gets no order any more.", volumes.Input{State: v1alpha1.VolumeDiscarding, From: absent}, v1alpha1.VolumeRemoving},
		"lost, removing":          {"It may return with its claim.", volumes.Input{State: v1alpha1.VolumeRemoving, From: lost}, v1alpha1.VolumeRemoving},
		"other lost, withdrawing": {"The other one attaches nothing.", volumes.Input{State: v1alpha1.VolumeWithdrawing, To: lost}, v1alpha1.VolumeUndoing},
		"other absent":            {"It may run unseen.", volumes.Input{State: v1alpha1.VolumeWithdrawing, To: absent}, v1alpha1.VolumeWithdrawing},
		"other lost, needed":      {"A user takes the volume back.", volumes.Input{State: v1alpha1.VolumeBinding, Return: true, To: volumes.Side{Lost: true, Needed: true}}, v1alpha1.VolumeWithdrawing},
		"two steps":               {"Without a report, no other cluster gets the volume.", volumes.Input{State: v1alpha1.VolumeReleased}, v1alpha1.VolumeDetaching},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out := volumes.Step(tc.in); out.State != tc.want || out.Settled {
				t.Errorf("%s\nStep: got %+v, want %q", tc.reason, out, tc.want)
			}
		})
	}
}

// A shared volume stays usable in the first cluster until that is to discard it.
func TestIsIn(t *testing.T) {
	t.Parallel()
	const never, from, to, both = "never", "from", "to", "both"
	for state, want := range map[v1alpha1.VolumeState][2]string{ // exclusive, shared
		v1alpha1.VolumeScaling: {never, from}, v1alpha1.VolumeDetaching: {never, from}, v1alpha1.VolumeReleased: {never, from},
		v1alpha1.VolumeBinding: {never, from}, v1alpha1.VolumeBound: {to, both}, v1alpha1.VolumeDiscarding: {to, to},
		v1alpha1.VolumeRemoving: {to, to}, v1alpha1.VolumeWithdrawing: {never, from}, v1alpha1.VolumeUndoing: {never, from},
		v1alpha1.VolumeReturning: {never, from},
	} {
		for i, shared := range []bool{false, true} {
			got := never
			switch inFrom, inTo := volumes.IsIn(state, shared, true), volumes.IsIn(state, shared, false); {
			case inFrom && inTo:
				got = both
			case inFrom:
				got = from
			case inTo:
				got = to
			}
			if got != want[i] {
				t.Errorf("IsIn %s, shared %t: got %s, want %s", state, shared, got, want[i])
			}
		}
	}
}
