// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
)

// assigner gives TenantNetworks what they draw from TenantConfigs. It is the only one
// to see what the tenant wrote.
type assigner struct {
	reader  client.Reader
	catalog *catalog
	desk    *reserve.Desk
}

// Handle implements admission.Handler.
func (h *assigner) Handle(ctx context.Context, r admission.Request) admission.Response {
	if r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	if err := h.catalog.ready(); err != nil {
		return answer(err)
	}
	obj, err := decodeTenantNetwork(r, r.Object.Raw)
	if err != nil {
		return answer(err)
	}
	old, err := decodeTenantNetwork(r, r.OldObject.Raw)
	if err != nil {
		return answer(err)
	}
	ref := network.Ref{Kind: v1.KindTenantNetwork, Namespace: r.Namespace, Name: nameOf(obj)}
	if err := h.assign(ctx, obj, old, ref, dryRun(r)); err != nil {
		return answer(about(ref, err))
	}
	return patched(r.Object.Raw, obj)
}

// assign changes obj. What an update leaves out it gets back; a network that was
// stored without an assignment is assigned like a new one when its spec changes.
func (h *assigner) assign(ctx context.Context, obj, old *v1.TenantNetwork, ref network.Ref, dryRun bool) error {
	if old == nil {
		return h.create(ctx, obj, true, ref, dryRun)
	}
	assigned := old.Annotations[v1.AssignedAnnotation]
	if specEqual(&obj.Spec, &old.Spec) {
		setAssigned(obj, assigned)
		return nil
	}
	a, err := network.ParseAssignment(assigned)
	if err != nil {
		return h.create(ctx, obj, false, ref, dryRun)
	}
	wish, err := h.wish(ctx, obj)
	if err != nil {
		return err
	}
	id, err := h.desk.NetworkID(ctx, wish)
	if err != nil {
		return err
	}
	setAssigned(obj, assigned)
	return tenant.Restore(&obj.Spec, a.Place, &old.Spec, id)
}

// create reserves a place. Whatever else is wrong is told first: a reservation for a
// network that never comes stays for a minute.
func (h *assigner) create(ctx context.Context, obj *v1.TenantNetwork, isNew bool, ref network.Ref, dryRun bool) error {
	if err := checkMeta(obj, isNew); err != nil {
		return err
	}
	if err := tenant.Unset(&obj.Spec); err != nil {
		return err
	}
	if err := precheck(obj); err != nil {
		return err
	}
	wish, err := h.wish(ctx, obj)
	if err != nil {
		return err
	}
	token, err := newToken()
	if err != nil {
		return err
	}
	owner := tenant.Owner{Namespace: ref.Namespace, Name: ref.Name, Token: token}
	choice, err := h.desk.Reserve(ctx, reserve.Request{Wish: wish, Owner: owner, Taken: h.catalog.taken, DryRun: dryRun})
	if err != nil {
		return err
	}
	choice.Apply(&obj.Spec)
	setAssigned(obj, network.Assignment{Place: choice.Place, Token: token}.String())
	n, err := network.FromTenantNetwork(obj)
	if err == nil {
		err = h.catalog.admit(nil, n, true, time.Now()) // it is let in when it is validated
	}
	if err != nil && !dryRun {
		err = errors.Join(err, h.desk.Release(ctx, token))
	}
	return err
}

// precheck finds what is wrong whatever is assigned: sriov needs a device pool, and
// gets one.
func precheck(obj *v1.TenantNetwork) error {
	trial := obj.DeepCopy()
	if o := &trial.Spec.Options; network.TypeOf(&trial.Spec) == v1.TypeSRIOV && o.DevicePool == "" {
		o.DevicePool = "assigned/later"
	}
	_, err := network.FromTenantNetwork(trial)
	return err
}

// wish reads the namespace's labels now: they decide which TenantConfigs apply.
func (h *assigner) wish(ctx context.Context, obj *v1.TenantNetwork) (tenant.Wish, error) {
	var ns corev1.Namespace
	if err := h.reader.Get(ctx, client.ObjectKey{Name: obj.Namespace}, &ns); err != nil {
		return tenant.Wish{}, fmt.Errorf("read labels of namespace %s: %w", obj.Namespace, err)
	}
	return tenant.Wish{
		Namespace: obj.Namespace, NamespaceLabels: ns.Labels, Type: network.TypeOf(&obj.Spec), NetworkID: obj.Spec.NetworkID,
		Device: obj.Spec.Options.Device, DevicePool: obj.Spec.Options.DevicePool,
	}, nil
}

func decodeTenantNetwork(r admission.Request, raw []byte) (*v1.TenantNetwork, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	obj := &v1.TenantNetwork{}
	if err := decodeJSON(raw, obj); err != nil {
		return nil, fmt.Errorf("decode TenantNetwork %s/%s: %w", r.Namespace, r.Name, err)
	}
	obj.Namespace = r.Namespace
	return obj, nil
}

// setAssigned writes the annotation, or takes away one that the tenant made up.
func setAssigned(obj *v1.TenantNetwork, text string) {
	if text == "" {
		delete(obj.Annotations, v1.AssignedAnnotation)
		return
	}
	if obj.Annotations == nil {
		obj.Annotations = map[string]string{}
	}
	obj.Annotations[v1.AssignedAnnotation] = text
}

// newToken is unguessable, so that nobody can name another's reservation.
func newToken() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}
