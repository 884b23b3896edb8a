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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	subnets *subnets
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
	trial, err := precheck(obj)
	if err != nil {
		return err
	}
	if err := h.subnets.check(ctx, trial, nil); err != nil {
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
	choice, err := h.reserve(ctx, obj, isNew, reserve.Request{Wish: wish, Owner: owner, Taken: h.catalog.taken, DryRun: dryRun})
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

// How long a creation waits for others of its namespace to be stored, and how often it
// looks. Most take milliseconds; one that failed after its reservation takes a minute.
const (
	pendingPatience = 3 * time.Second
	pendingEvery    = 100 * time.Millisecond
	// pendingRetrySeconds is when the client is to try again. client-go does so by itself,
	// ten times: longer than a reservation waits for its network.
	pendingRetrySeconds = 10
)

// reserve finds a place for a network whose name is new: the API server looks whether it is
// only after admission, and after quota, and tells nobody that it refused. So few
// reservations of a namespace may be without a network at any time.
func (h *assigner) reserve(ctx context.Context, obj *v1.TenantNetwork, isNew bool, r reserve.Request) (tenant.Choice, error) {
	for deadline := time.Now().Add(pendingPatience); ; {
		alive, err := h.tokens(ctx, obj, isNew)
		if err != nil {
			return tenant.Choice{}, err
		}
		r.Alive = alive
		choice, err := h.desk.Reserve(ctx, r)
		if !errors.Is(err, tenant.ErrPending) || time.Now().After(deadline) || !pause(ctx, pendingEvery) {
			return choice, err
		}
	}
}

// tokens lists those of the namespace's networks, consistently. The error is the API
// server's own when a new network has the name of one.
func (h *assigner) tokens(ctx context.Context, obj *v1.TenantNetwork, isNew bool) (map[string]bool, error) {
	alive, exists := map[string]bool{}, false
	err := eachPage(ctx, h.reader, newTenantNetworkMetadata, func(other client.Object) {
		exists = exists || other.GetName() == obj.Name
		if a, err := network.ParseAssignment(other.GetAnnotations()[v1.AssignedAnnotation]); err == nil {
			alive[a.Token] = true
		}
	}, client.InNamespace(obj.Namespace))
	if err != nil {
		return nil, fmt.Errorf("list TenantNetworks of namespace %s: %w", obj.Namespace, err)
	}
	if exists && isNew {
		return nil, apierrors.NewAlreadyExists(v1.SchemeGroupVersion().WithResource("tenantnetworks").GroupResource(), obj.Name)
	}
	return alive, nil
}

// newTenantNetworkMetadata is an empty list of TenantNetworks' metadata.
func newTenantNetworkMetadata() client.ObjectList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("TenantNetworkList"))
	return list
}

// precheck finds what is wrong whatever is assigned: sriov needs a device pool, and
// gets one.
func precheck(obj *v1.TenantNetwork) (*network.Network, error) {
	trial := obj.DeepCopy()
	if o := &trial.Spec.Options; network.TypeOf(&trial.Spec) == v1.TypeSRIOV && o.DevicePool == "" {
		o.DevicePool = "assigned/later"
	}
	return network.FromTenantNetwork(trial)
}

// wish reads the namespace's labels now: they decide which TenantConfigs apply.
func (h *assigner) wish(ctx context.Context, obj *v1.TenantNetwork) (tenant.Wish, error) {
	labels, err := namespaceLabels(ctx, h.reader, obj.Namespace)
	if err != nil {
		return tenant.Wish{}, err
	}
	return tenant.Wish{
		Namespace: obj.Namespace, NamespaceLabels: labels, Type: network.TypeOf(&obj.Spec),
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
