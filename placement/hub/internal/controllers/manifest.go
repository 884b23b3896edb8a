// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// manifest renders the object for one cluster, and returns the data of a Secret apart. Its
// errors are mistakes of people.
func (p *pass) manifest(t *v1alpha1.Target, cluster *v1alpha1.Cluster, rules *ruleSet) (raw []byte, data map[string][]byte, err error) {
	o := p.object.DeepCopy()
	render.Prune(o)
	if p.key.isSecret() { // no rule sees its data, and no error of a rule tells of them
		if data, err = takeData(o); err != nil {
			return nil, nil, err
		}
	}
	if err := rules.apply(o, cluster); err != nil {
		return nil, nil, err
	}
	if p.key.isSecret() && (o.Object["data"] != nil || o.Object["stringData"] != nil) {
		return nil, nil, fmt.Errorf("%s: Customizations must not set data or stringData of a Secret: change the Secret itself", p.key)
	}
	if t.RequestedReplicas != nil { // last: replicas are the mover's
		if err := render.SetReplicas(o, *t.RequestedReplicas); err != nil {
			return nil, nil, fmt.Errorf("ask for replicas: %w", err)
		}
	}
	raw, err = render.MarshalManifest(o)
	return raw, data, err
}

// lastGood is a Work's manifest with the replicas that are asked now.
func lastGood(w *v1alpha1.Work, asked *int32) ([]byte, error) {
	o, err := manifestOf(w)
	if err != nil {
		return nil, err
	}
	if asked != nil {
		if err := render.SetReplicas(o, *asked); err != nil {
			return nil, fmt.Errorf("ask for replicas: %w", err)
		}
	}
	return render.MarshalManifest(o)
}

// manifestOf reads the manifest of a Work; nil when it has none.
func manifestOf(w *v1alpha1.Work) (*unstructured.Unstructured, error) {
	if len(w.Spec.Manifests) == 0 {
		return nil, nil
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(w.Spec.Manifests[0].Object.Raw); err != nil {
		return nil, fmt.Errorf("read manifest of Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	return o, nil
}

// replicasIn is how many replicas a Work asks for.
func replicasIn(w *v1alpha1.Work) (int32, bool) {
	o, err := manifestOf(w)
	if err != nil || o == nil {
		return 0, false
	}
	return render.Replicas(o)
}

// asks says whether a Work asks for so many replicas.
func asks(w *v1alpha1.Work, asked int32) bool {
	raw, err := lastGood(w, &asked)
	return err == nil && len(w.Spec.Manifests) > 0 && sameJSON(raw, w.Spec.Manifests[0].Object.Raw)
}

// sameSpec compares what Works say, whatever their manifests' bytes are.
func sameSpec(a, b *v1alpha1.WorkSpec) bool {
	x, y := *a, *b
	if len(x.Manifests) != 1 || len(y.Manifests) != 1 || x.Manifests[0].Resource != y.Manifests[0].Resource ||
		!equality.Semantic.DeepEqual(x.Manifests[0].Secret, y.Manifests[0].Secret) || !sameJSON(x.Manifests[0].Object.Raw, y.Manifests[0].Object.Raw) {
		return false
	}
	x.Manifests, y.Manifests = nil, nil
	x.Epoch, x.Term, x.History = y.Epoch, y.Term, y.History // only who writes a change signs it
	return equality.Semantic.DeepEqual(x, y)
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y unstructured.Unstructured
	return x.UnmarshalJSON(a) == nil && y.UnmarshalJSON(b) == nil && equality.Semantic.DeepEqual(x.Object, y.Object)
}
