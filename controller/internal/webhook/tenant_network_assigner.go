// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// tenantNetworkAssigner assigns to TenantNetworks what they draw from TenantConfigs. Being a
// mutating webhook, it sees the object as the tenant wrote it.
type tenantNetworkAssigner struct {
	reader    client.Reader
	index     *networkIndex
	allocator *reserve.Allocator
	subnets   *subnetValidator
}

// Handle implements admission.Handler.
func (h *tenantNetworkAssigner) Handle(ctx context.Context, r admission.Request) admission.Response {
	if r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	if err := h.index.checkSynced(); err != nil {
		return responseFor(err)
	}
	obj, err := decodeTenantNetwork(r, r.Object.Raw)
	if err != nil {
		return responseFor(err)
	}
	old, err := decodeTenantNetwork(r, r.OldObject.Raw)
	if err != nil {
		return responseFor(err)
	}
	ref := network.Ref{Kind: v1.KindTenantNetwork, Namespace: r.Namespace, Name: displayName(obj)}
	if err := h.assign(ctx, obj, old, ref, isDryRun(r)); err != nil {
		return responseFor(withSubject(ref, err))
	}
	return patchResponse(r.Object.Raw, obj)
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

// displayName returns the object's name; for a name that is to be generated, the prefix and "*".
func displayName(obj *v1.TenantNetwork) string {
	if obj.Name == "" {
		return truncateGenerateName(obj.GenerateName) + "*"
	}
	return obj.Name
}

// patchResponse returns a patch of the assigned attributes only. A patch from the Go type would add
// empty fields that the user did not write, and drop unknown ones.
func patchResponse(raw []byte, obj *v1.TenantNetwork) admission.Response {
	var u unstructured.Unstructured
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		return denied(http.StatusBadRequest, metav1.StatusReasonBadRequest, err)
	}
	annotations := u.GetAnnotations()
	if text, ok := obj.Annotations[v1.AssignedAnnotation]; ok {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1.AssignedAnnotation] = text
	} else {
		delete(annotations, v1.AssignedAnnotation)
	}
	u.SetAnnotations(annotations)
	o := obj.Spec.Options
	for _, set := range []struct {
		value any
		unset bool
		path  []string
	}{
		{obj.Spec.NetworkID, false, []string{"spec", "NetworkID"}},
		{o.Device, o.Device == "", []string{"spec", "Options", "host_device"}},
		{o.DevicePool, o.DevicePool == "", []string{"spec", "Options", "device_pool"}},
		{int64(o.VLAN), o.VLAN == 0, []string{"spec", "Options", "vlan"}},
		{int64(o.VXLAN), o.VXLAN == 0, []string{"spec", "Options", "vxlan"}},
	} {
		if set.unset {
			continue // the tenant has not set it
		}
		if err := unstructured.SetNestedField(u.Object, set.value, set.path...); err != nil {
			return denied(http.StatusBadRequest, metav1.StatusReasonBadRequest, err)
		}
	}
	changed, err := json.Marshal(u.Object)
	if err != nil {
		return responseFor(err)
	}
	return admission.PatchResponseFromRaw(raw, changed)
}

// assign changes obj. An update keeps the assigned attributes that it leaves out. A network that
// was stored without an assignment is assigned like a new one when its spec changes.
func (h *tenantNetworkAssigner) assign(ctx context.Context, obj, old *v1.TenantNetwork, ref network.Ref, dryRun bool) error {
	if old == nil {
		return h.assignNew(ctx, obj, nil, ref, dryRun)
	}
	assigned := old.Annotations[v1.AssignedAnnotation]
	if specEqual(&obj.Spec, &old.Spec) {
		setAssignmentAnnotation(obj, assigned)
		return nil
	}
	a, err := network.ParseAssignment(assigned)
	if err != nil {
		return h.assignNew(ctx, obj, old, ref, dryRun)
	}
	request, err := h.networkRequest(ctx, obj)
	if err != nil {
		return err
	}
	id, err := h.allocator.NetworkID(ctx, request, false)
	if err != nil {
		return err
	}
	setAssignmentAnnotation(obj, assigned)
	return tenant.RestoreAssignment(&obj.Spec, a.Slot, &old.Spec, id)
}

func specEqual(a, b *v1.NetworkSpec) bool { return apiequality.Semantic.DeepEqual(a, b) }

// assignNew reserves a slot. It checks everything else first, because a reservation for a network
// that is rejected afterwards lasts for a minute.
func (h *tenantNetworkAssigner) assignNew(ctx context.Context, obj, old *v1.TenantNetwork, ref network.Ref, dryRun bool) error {
	isNew := old == nil
	if err := validateObjectMeta(obj, old); err != nil {
		return err
	}
	if err := tenant.CheckIDsUnset(&obj.Spec); err != nil {
		return err
	}
	request, err := h.networkRequest(ctx, obj)
	if err != nil {
		return err
	}
	if obj.Spec.NetworkID == "" {
		if obj.Spec.NetworkID, err = h.allocator.NetworkID(ctx, request, true); err != nil {
			return err
		}
	}
	trial, err := validateUnassigned(obj)
	if err != nil {
		return err
	}
	if err := network.CheckPools(trial); err != nil {
		return err
	}
	if err := h.subnets.validate(ctx, trial, nil); err != nil {
		return err
	}
	token, err := newReservationToken()
	if err != nil {
		return err
	}
	owner := tenant.Owner{Namespace: ref.Namespace, Name: ref.Name, Token: token}
	choice, err := h.reserveSlot(ctx, obj, isNew, reserve.Request{Network: request, Owner: owner, Taken: h.index.isTaken, DryRun: dryRun})
	if err != nil {
		return err
	}
	choice.Apply(&obj.Spec)
	setAssignmentAnnotation(obj, network.Assignment{Slot: choice.Slot, Token: token}.String())
	n, err := network.FromTenantNetwork(obj)
	if err == nil {
		err = h.index.admit(nil, n, true, time.Now()) // networkValidator makes it one in flight
	}
	if err != nil && !dryRun {
		err = errors.Join(err, h.allocator.Release(ctx, token))
	}
	return err
}

// validateObjectMeta rejects metadata that the API server would reject: it checks metadata only
// after admission. Until then the name may be any text, which would be written into the status of a
// TenantConfig next to the names of others.
func validateObjectMeta(obj, old *v1.TenantNetwork) error {
	trial := obj.ObjectMeta.DeepCopy()
	trial.ManagedFields, trial.Generation = nil, 1 // the API server sets them
	if trial.Name == "" && trial.GenerateName != "" {
		trial.Name = truncateGenerateName(trial.GenerateName) + generatedSuffix
	}
	path := field.NewPath("metadata")
	faults := validation.ValidateObjectMeta(trial, true, validation.NameIsDNSSubdomain, path)
	if v := trial.ResourceVersion; old == nil && v != "" && v != "0" {
		faults = append(faults, field.Invalid(path.Child("resourceVersion"), v, "must not be set in a new object: the API server sets it"))
	}
	faults = append(faults, forbiddenByPolicies(obj, old)...)
	if len(faults) == 0 {
		return nil
	}
	return &network.InvalidError{Faults: faults}
}

// forbiddenByPolicies returns the errors of the admission policies networks.danm.io and
// delegates.danm.io, which the API server evaluates after this webhook has reserved a slot. Old is nil
// for a new network; a stored one may keep what it has.
func forbiddenByPolicies(obj, old *v1.TenantNetwork) field.ErrorList {
	var faults field.ErrorList
	if old == nil {
		faults, old = forbiddenOfDelegate(&obj.Spec, field.NewPath("spec", "Options")), &v1.TenantNetwork{}
	}
	takesOver := func(o *v1.TenantNetwork) bool { return o.Annotations[v1.TakeOverAnnotation] == "true" }
	if takesOver(obj) && !takesOver(old) {
		faults = append(faults, field.Invalid(field.NewPath("metadata", "annotations").Key(v1.TakeOverAnnotation), "true", "must not be set on a network: taking over a live DANM network is not supported yet"))
	}
	before, path := recordsOfDANM(&old.Spec.Options), field.NewPath("spec", "Options")
	for i, record := range recordsOfDANM(&obj.Spec.Options) {
		if record.value != "" && before[i].value == "" {
			faults = append(faults, field.Forbidden(path.Child(record.path[0], record.path[1:]...), "must be empty: it is DANM's record of addresses in use, and nothing reads it"))
		}
	}
	return faults
}

// danmRecord is an option in which DANM records addresses in use.
type danmRecord struct {
	path  []string
	value string
}

// recordsOfDANM returns DANM's records, always in the same order.
func recordsOfDANM(o *v1.NetworkOptions) []danmRecord {
	records := []danmRecord{
		{path: []string{"alloc"}, value: o.Alloc},
		{path: []string{"alloc6"}, value: o.Alloc6},
		{path: []string{"allocation_pool", "lastIp"}},
		{path: []string{"allocation_pool_v6", "lastIp"}},
	}
	if o.Pool != nil {
		records[2].value = o.Pool.LastIP
	}
	if o.Pool6 != nil {
		records[3].value = o.Pool6.LastIP
	}
	return records
}

// forbiddenOfDelegate returns the errors of options that another CNI plugin does not get to see.
func forbiddenOfDelegate(spec *v1.NetworkSpec, path *field.Path) (faults field.ErrorList) {
	if n := (&network.Network{Type: network.BackendTypeOf(spec)}); !n.Delegates() {
		return nil
	}
	for _, option := range []struct {
		name string
		set  bool
	}{{"cidr", spec.Options.CIDR != ""}, {"net6", spec.Options.Net6 != ""}, {"rt_tables", spec.Options.RTTables != 0}, {"mtu", spec.Options.MTU != 0}} {
		if option.set {
			faults = append(faults, field.Forbidden(path.Child(option.name),
				fmt.Sprintf("must not be set for NetworkType %q, because another CNI plugin sets addresses, routes and the MTU itself: leave %s out", spec.NetworkType, option.name)))
		}
	}
	return faults
}

// The API server turns a generateName into a name by cutting it and appending random characters, so
// that the name has at most 63 (k8s.io/apiserver/pkg/storage/names).
const (
	maxGenerateNameLength = 58
	generatedSuffix       = "xxxxx"
)

// truncateGenerateName returns the part of a generateName that will be in the name.
func truncateGenerateName(prefix string) string {
	return prefix[:min(len(prefix), maxGenerateNameLength)]
}

// validateUnassigned finds errors that do not depend on the assignment. Type sriov requires a
// device pool, which is still to be assigned.
func validateUnassigned(obj *v1.TenantNetwork) (*network.Network, error) {
	n, err := network.FromTenantNetwork(obj)
	var invalid *network.InvalidError
	if obj.Spec.Options.DevicePool != "" || !errors.As(err, &invalid) {
		return n, err
	}
	pool := field.NewPath("spec", "Options", "device_pool").String()
	invalid.Faults = slices.DeleteFunc(invalid.Faults, func(f *field.Error) bool { return f.Type == field.ErrorTypeRequired && f.Field == pool })
	if len(invalid.Faults) > 0 {
		return nil, err
	}
	trial := obj.DeepCopy()
	trial.Spec.Options.DevicePool = "assigned/later" // valid, so no error names it
	if n, err = network.FromTenantNetwork(trial); n != nil {
		n.DevicePool = "" // no message may name what the tenant did not write
	}
	return n, err
}

// newReservationToken returns an unguessable token, so that a tenant cannot name another tenant's
// reservation.
func newReservationToken() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// A creation waits until other networks of its namespace are stored. Most are stored within
// milliseconds; a reservation whose creation failed lasts for a minute.
const (
	pendingTimeout      = 3 * time.Second
	pendingPollInterval = 100 * time.Millisecond
	// pendingRetrySeconds is when the client should try again. client-go does so ten times, which
	// is longer than a reservation waits for its network.
	pendingRetrySeconds = 10
)

// reserveSlot reserves a slot for a network whose name is new. The API server checks the name and
// the quota only after admission, and does not report a rejection here. Therefore only few
// reservations of a namespace may be without a network at any time.
func (h *tenantNetworkAssigner) reserveSlot(ctx context.Context, obj *v1.TenantNetwork, isNew bool, r reserve.Request) (tenant.Choice, error) {
	for deadline := time.Now().Add(pendingTimeout); ; {
		tokens, err := h.assignedTokens(ctx, obj, isNew)
		if err != nil {
			return tenant.Choice{}, err
		}
		r.LiveTokens = tokens
		choice, err := h.allocator.Reserve(ctx, r)
		if !errors.Is(err, tenant.ErrReservationsPending) || time.Now().After(deadline) || !sleep(ctx, pendingPollInterval) {
			return choice, err
		}
	}
}

// assignedTokens lists the tokens of the namespace's networks, consistently. It returns the API
// server's AlreadyExists when a new network has the name of one.
func (h *tenantNetworkAssigner) assignedTokens(ctx context.Context, obj *v1.TenantNetwork, isNew bool) (map[string]bool, error) {
	tokens, exists := map[string]bool{}, false
	err := eachListItem(ctx, h.reader, newTenantNetworkMetadata, func(other client.Object) {
		exists = exists || other.GetName() == obj.Name
		if a, err := network.ParseAssignment(other.GetAnnotations()[v1.AssignedAnnotation]); err == nil {
			tokens[a.Token] = true
		}
	}, client.InNamespace(obj.Namespace))
	if err != nil {
		return nil, fmt.Errorf("list TenantNetworks of namespace %s: %w", obj.Namespace, err)
	}
	if exists && isNew {
		return nil, apierrors.NewAlreadyExists(v1.SchemeGroupVersion().WithResource("tenantnetworks").GroupResource(), obj.Name)
	}
	return tokens, nil
}

// newTenantNetworkMetadata returns an empty list of TenantNetworks' metadata.
func newTenantNetworkMetadata() client.ObjectList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("TenantNetworkList"))
	return list
}

// networkRequest returns what the tenant requests, with the present labels of its namespace, which
// decide which TenantConfigs apply.
func (h *tenantNetworkAssigner) networkRequest(ctx context.Context, obj *v1.TenantNetwork) (tenant.NetworkRequest, error) {
	labels, err := namespaceLabels(ctx, h.reader, obj.Namespace)
	if err != nil {
		return tenant.NetworkRequest{}, err
	}
	return tenant.NetworkRequest{
		Namespace: obj.Namespace, NamespaceLabels: labels, Type: network.BackendTypeOf(&obj.Spec),
		Device: obj.Spec.Options.Device, DevicePool: obj.Spec.Options.DevicePool,
	}, nil
}

// setAssignmentAnnotation writes the annotation, or removes one that the tenant wrote.
func setAssignmentAnnotation(obj *v1.TenantNetwork, text string) {
	if text == "" {
		delete(obj.Annotations, v1.AssignedAnnotation)
		return
	}
	if obj.Annotations == nil {
		obj.Annotations = map[string]string{}
	}
	obj.Annotations[v1.AssignedAnnotation] = text
}
