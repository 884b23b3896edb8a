// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// What the API server would refuse is refused before anything is reserved, and what is
// let in can stand in a TenantConfig's status.
func TestValidateObjectMeta(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		meta   metav1.ObjectMeta
		opts   v1.NetworkOptions
		old    bool
		want   string // the field that is wrong
	}{
		"Name":         {reason: "A good one.", meta: metav1.ObjectMeta{Name: "net-1.a"}},
		"Generated":    {reason: "The API server appends to it.", meta: metav1.ObjectMeta{GenerateName: "net-"}},
		"LongPrefix":   {reason: "The API server cuts it.", meta: metav1.ObjectMeta{GenerateName: strings.Repeat("a", 240)}},
		"CutAtDot":     {reason: "Cut, it still can be a name.", meta: metav1.ObjectMeta{GenerateName: strings.Repeat("a", 57) + ".b"}},
		"Both":         {reason: "The name counts.", meta: metav1.ObjectMeta{Name: "net", GenerateName: "net-"}},
		"Upper":        {reason: "No DNS name.", meta: metav1.ObjectMeta{Name: "Bad"}, want: "metadata.name"},
		"Injected":     {reason: "Two reservations in one name.", meta: metav1.ObjectMeta{Name: "x 0123456789abcdef, 1001 red/y"}, want: "metadata.name"},
		"Star":         {reason: "It stands for any name with the prefix.", meta: metav1.ObjectMeta{Name: "net-*"}, want: "metadata.name"},
		"Long":         {reason: "It would fill the status.", meta: metav1.ObjectMeta{Name: strings.Repeat("a", 254)}, want: "metadata.name"},
		"Prefix":       {reason: "No DNS name.", meta: metav1.ObjectMeta{GenerateName: "X_"}, want: "metadata.generateName"},
		"EndlessPrefx": {reason: "It would fill the status.", meta: metav1.ObjectMeta{GenerateName: strings.Repeat("a", 1000)}, want: "metadata.generateName"},
		"Nameless":     {reason: "Neither.", want: "metadata.name"},
		"Namespace":    {reason: "No DNS label.", meta: metav1.ObjectMeta{Name: "net", Namespace: "Red"}, want: "metadata.namespace"},
		"Label":        {reason: "A key with a blank.", meta: metav1.ObjectMeta{Name: "net", Labels: map[string]string{"a b": "c"}}, want: "metadata.labels"},
		"Annotations":  {reason: "Larger than the API server takes.", meta: metav1.ObjectMeta{Name: "net", Annotations: map[string]string{"a": strings.Repeat("b", 300<<10)}}, want: "metadata.annotations"},
		"Finalizer":    {reason: "No qualified name.", meta: metav1.ObjectMeta{Name: "net", Finalizers: []string{"a b"}}, want: "metadata.finalizers"},
		"Owner":        {reason: "Of no kind.", meta: metav1.ObjectMeta{Name: "net", OwnerReferences: []metav1.OwnerReference{{Name: "a"}}}, want: "metadata.ownerReferences"},
		"Version":      {reason: "A new object has none.", meta: metav1.ObjectMeta{Name: "net", ResourceVersion: "5"}, want: "metadata.resourceVersion"},
		"OldVersion":   {reason: "One that is stored has one.", meta: metav1.ObjectMeta{Name: "net", ResourceVersion: "5"}, old: true},
		"TakeOver":     {reason: "Nothing takes over from DANM.", meta: metav1.ObjectMeta{Name: "net", Annotations: map[string]string{v1.TakeOverAnnotation: "true"}}, want: v1.TakeOverAnnotation},
		"Alloc":        {reason: "DANM's bitmap, which nothing reads.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Alloc: "gAAB"}, want: "spec.Options.alloc"},
		"Alloc6":       {reason: "DANM's bitmap, which nothing reads.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Alloc6: "gAAB"}, want: "spec.Options.alloc6"},
		"LastIP":       {reason: "DANM's cursor, which nothing reads.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Pool: &v1.IPPool{LastIP: "10.0.0.7"}}, want: "spec.Options.allocation_pool.lastIp"},
		"LastIP6":      {reason: "DANM's cursor, which nothing reads.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Pool6: &v1.IPPoolV6{IPPool: v1.IPPool{LastIP: "fd00::7"}}}, want: "spec.Options.allocation_pool_v6.lastIp"},
		"OldAlloc":     {reason: "An older version let it in.", meta: metav1.ObjectMeta{Name: "net", ResourceVersion: "5"}, opts: v1.NetworkOptions{Alloc: "gAAB"}, old: true},
		"ServersOwn":   {reason: "The API server writes them anew.", meta: metav1.ObjectMeta{Name: "net", Generation: -5, ManagedFields: []metav1.ManagedFieldsEntry{{Operation: "x"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := &v1.TenantNetwork{ObjectMeta: tc.meta, Spec: v1.NetworkSpec{Options: tc.opts}}
			if obj.Namespace == "" {
				obj.Namespace = "red"
			}
			err := validateObjectMeta(obj, !tc.old)
			if (err != nil) != (tc.want != "") || err != nil && (!strings.Contains(err.Error(), tc.want) || !errors.Is(err, network.ErrInvalid)) {
				t.Fatalf("%s\ngot %v, want %q", tc.reason, err, tc.want)
			}
			if err != nil {
				return
			}
			r := tenant.Reservation{
				Slot:  network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: 5},
				Owner: tenant.Owner{Namespace: obj.Namespace, Name: displayName(obj), Token: "0123456789abcdef"},
			}
			if err := tenant.NewReservations().Add(r); err != nil {
				t.Errorf("%s\nlet in, and not to be reserved for: %v", tc.reason, err)
			}
		})
	}
}
