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

// Metadata that the API server would reject is rejected before anything is reserved, and an
// admitted name can be in a TenantConfig's status.
func TestValidateObjectMeta(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		meta   metav1.ObjectMeta
		opts   v1.NetworkOptions
		old    bool   // the network is stored with these options
		stored bool   // it is stored without options
		want   string // the field that is wrong
	}{
		"Name":          {reason: "The name is valid.", meta: metav1.ObjectMeta{Name: "net-1.a"}},
		"Generated":     {reason: "The API server appends characters to the prefix.", meta: metav1.ObjectMeta{GenerateName: "net-"}},
		"LongPrefix":    {reason: "The API server cuts the prefix.", meta: metav1.ObjectMeta{GenerateName: strings.Repeat("a", 240)}},
		"CutAtDot":      {reason: "The cut prefix can still become a name.", meta: metav1.ObjectMeta{GenerateName: strings.Repeat("a", 57) + ".b"}},
		"Both":          {reason: "The name has precedence over generateName.", meta: metav1.ObjectMeta{Name: "net", GenerateName: "net-"}},
		"Upper":         {reason: "The name is no DNS name.", meta: metav1.ObjectMeta{Name: "Bad"}, want: "metadata.name"},
		"Injected":      {reason: "The name reads as two reservations.", meta: metav1.ObjectMeta{Name: "x 0123456789abcdef, 1001 red/y"}, want: "metadata.name"},
		"Star":          {reason: "The star stands for any name with the prefix.", meta: metav1.ObjectMeta{Name: "net-*"}, want: "metadata.name"},
		"Long":          {reason: "The name would fill the status.", meta: metav1.ObjectMeta{Name: strings.Repeat("a", 254)}, want: "metadata.name"},
		"Prefix":        {reason: "The prefix is not part of a DNS name.", meta: metav1.ObjectMeta{GenerateName: "X_"}, want: "metadata.generateName"},
		"LongestPrefix": {reason: "The prefix would fill the status.", meta: metav1.ObjectMeta{GenerateName: strings.Repeat("a", 1000)}, want: "metadata.generateName"},
		"Nameless":      {reason: "The object has neither name nor generateName.", want: "metadata.name"},
		"Namespace":     {reason: "The namespace is no DNS label.", meta: metav1.ObjectMeta{Name: "net", Namespace: "Red"}, want: "metadata.namespace"},
		"Label":         {reason: "The key has a space.", meta: metav1.ObjectMeta{Name: "net", Labels: map[string]string{"a b": "c"}}, want: "metadata.labels"},
		"Annotations":   {reason: "The annotations are larger than the API server accepts.", meta: metav1.ObjectMeta{Name: "net", Annotations: map[string]string{"a": strings.Repeat("b", 300<<10)}}, want: "metadata.annotations"},
		"Finalizer":     {reason: "The finalizer is no qualified name.", meta: metav1.ObjectMeta{Name: "net", Finalizers: []string{"a b"}}, want: "metadata.finalizers"},
		"Owner":         {reason: "The owner has no kind.", meta: metav1.ObjectMeta{Name: "net", OwnerReferences: []metav1.OwnerReference{{Name: "a"}}}, want: "metadata.ownerReferences"},
		"Version":       {reason: "A new object must have no resourceVersion.", meta: metav1.ObjectMeta{Name: "net", ResourceVersion: "5"}, want: "metadata.resourceVersion"},
		"OldVersion":    {reason: "A stored object has a resourceVersion.", meta: metav1.ObjectMeta{Name: "net", ResourceVersion: "5"}, old: true},
		"TakeOver":      {reason: "Taking over from DANM is not supported.", meta: metav1.ObjectMeta{Name: "net", Annotations: map[string]string{v1.TakeOverAnnotation: "true"}}, want: v1.TakeOverAnnotation},
		"Alloc":         {reason: "alloc is DANM's bitmap, which is not read.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Alloc: "gAAB"}, want: "spec.Options.alloc"},
		"Alloc6":        {reason: "alloc6 is DANM's bitmap, which is not read.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Alloc6: "gAAB"}, want: "spec.Options.alloc6"},
		"LastIP":        {reason: "lastIp is DANM's cursor, which is not read.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Pool: &v1.IPPool{LastIP: "10.0.0.7"}}, want: "spec.Options.allocation_pool.lastIp"},
		"LastIP6":       {reason: "lastIp is DANM's cursor, which is not read.", meta: metav1.ObjectMeta{Name: "net"}, opts: v1.NetworkOptions{Pool6: &v1.IPPoolV6{IPPool: v1.IPPool{LastIP: "fd00::7"}}}, want: "spec.Options.allocation_pool_v6.lastIp"},
		"AddedAlloc":    {reason: "The policy rejects what is added to a stored network.", meta: metav1.ObjectMeta{Name: "net", ResourceVersion: "5"}, opts: v1.NetworkOptions{Alloc: "gAAB"}, stored: true, want: "spec.Options.alloc"},
		"OldAlloc":      {reason: "An older version admitted it.", meta: metav1.ObjectMeta{Name: "net", ResourceVersion: "5"}, opts: v1.NetworkOptions{Alloc: "gAAB"}, old: true},
		"ServersOwn":    {reason: "The API server overwrites these fields.", meta: metav1.ObjectMeta{Name: "net", Generation: -5, ManagedFields: []metav1.ManagedFieldsEntry{{Operation: "x"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := &v1.TenantNetwork{ObjectMeta: tc.meta, Spec: v1.NetworkSpec{Options: tc.opts}}
			if obj.Namespace == "" {
				obj.Namespace = "red"
			}
			var old *v1.TenantNetwork
			switch {
			case tc.old:
				old = obj
			case tc.stored:
				old = &v1.TenantNetwork{ObjectMeta: obj.ObjectMeta}
			}
			err := validateObjectMeta(obj, old)
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
				t.Errorf("%s\nadmitted without a reservation: %v", tc.reason, err)
			}
		})
	}
}
