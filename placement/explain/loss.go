// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// LossEffect is what the declaration that a cluster is lost changes for one object there.
type LossEffect struct {
	// Stays is why no other cluster starts the object; "" if one does.
	Stays string
	// RunsAgain is true for what would otherwise never run a second time.
	RunsAgain bool
	// RunsInOne is true for a kind that must run in one cluster at a time.
	RunsInOne bool
}

// Loss returns the effect on the object of a Work of the cluster.
func Loss(w *v1alpha1.Work) (LossEffect, error) {
	o := &unstructured.Unstructured{}
	if len(w.Spec.Manifests) == 0 {
		return LossEffect{}, nil
	}
	if err := o.UnmarshalJSON(w.Spec.Manifests[0].Object.Raw); err != nil {
		return LossEffect{}, fmt.Errorf("decode the manifest of Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	gk := o.GroupVersionKind().GroupKind()
	e := LossEffect{RunsAgain: policy.RunsOnce(gk), RunsInOne: policy.BreaksBeforeMake(gk)}
	claim := ""
	if names := render.VolumeClaimNames(o); len(names) > 0 {
		claim = names[0]
	}
	finished := false
	if len(w.Status.Manifests) > 0 {
		m := &w.Status.Manifests[0]
		if len(m.VolumeClaims) > 0 {
			claim = cmp.Or(claim, m.VolumeClaims[0])
		}
		if m.Status != nil {
			reported := &unstructured.Unstructured{}
			if err := reported.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"status":%s}`, o.GetAPIVersion(), o.GetKind(), m.Status.Raw)); err != nil {
				return LossEffect{}, fmt.Errorf("decode the status of Work %s/%s: %w", w.Namespace, w.Name, err)
			}
			finished = render.HasFinished(reported)
		}
	}
	switch {
	case finished:
		e.Stays = "it has finished, and does not run again"
	case v1alpha1.IsVolumeClaim(gk):
		e.Stays = "its data is there"
	case claim != "":
		e.Stays = "PersistentVolumeClaim " + claim + " has its data there"
	}
	return e, nil
}
