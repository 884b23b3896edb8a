// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hostile

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// addManagedFields adds an entry to the managedFields of an object, for a field that it does not have.
func addManagedFields(size int) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		all, _, _ := unstructured.NestedSlice(o.Object, "metadata", "managedFields")
		all = append(all, map[string]any{
			"manager": "filler", "operation": "Update", "apiVersion": "danm.io/v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
			"fieldsV1": map[string]any{"f:spec": map[string]any{"f:" + strings.Repeat("x", size): map[string]any{}}},
		})
		_ = unstructured.SetNestedSlice(o.Object, all, "metadata", "managedFields")
	}
}

// managers are the names of those whom managedFields has.
func managers(o *unstructured.Unstructured) (names []string) {
	for _, m := range o.GetManagedFields() {
		names = append(names, m.Manager)
	}
	return names
}

// With 1.5 MiB an object is full, and each claim of the network fails. The API server keeps
// entries of managedFields for fields that no object has.
func TestNodeFillsNoManagedFields(t *testing.T) {
	t.Parallel()
	n := startNodes(t)
	u := n.network(t, v1.KindClusterNetwork)
	for how, way := range writeMethods() {
		from := u.DeepCopy()
		if err := n.env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), from); err != nil {
			t.Fatal(err)
		}
		to := from.DeepCopy()
		addManagedFields(100 << 10)(to)
		if err := way(t.Context(), n.daemon, from, to); err == nil && slices.Contains(managers(to), "filler") {
			t.Errorf("%s: accepted", how)
		}
	}
}

// A node's entry sets bits of any page, which each claim writes: with as many pages as it
// may name, a claim of another node still fits into the object.
func TestNodeFillsNoBitmap(t *testing.T) {
	t.Parallel()
	n := startNodes(t)
	name := apitest.Name("wide")
	id := "w" + name[len(name)-8:]
	wide := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NetworkSpec{
		NetworkID: id, NetworkType: "ipvlan", Options: v1.NetworkOptions{Device: id, CIDR: "10.0.0.0/8", Net6: "fd00::/64"},
	}}
	if err := n.env.Client.Create(t.Context(), wide); err != nil {
		t.Fatal(err)
	}
	net, err := network.FromObject(wide)
	if err != nil {
		t.Fatal(err)
	}
	good := allocator.New(kube.NewStore(n.env.As(t, apitest.NodeDaemon(n.good))), allocator.Config{Node: n.good, NodeUID: "good", Incarnation: 1, WarmPoolSize: -1})
	t.Cleanup(good.Close)
	claim := func() {
		t.Helper()
		if _, _, err := good.Claim(t.Context(), net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{Dynamic: true}); err != nil {
			t.Fatalf("the other node claims an address: %v", err)
		}
	}
	claim()
	for size := 64 << 10; ; size /= 2 { // the longest that the schema lets pass
		if err := n.env.Client.Get(t.Context(), client.ObjectKeyFromObject(wide), wide); err != nil {
			t.Fatal(err)
		}
		wide.Status.IPAM.Held[n.evil] = v1.HeldAddresses{UID: "evil", Seq: 1, V4: scatteredAddresses("10.0.0.0", size), V6: scatteredAddresses("fd00::10:0:0", size)}
		err := n.daemon.Status().Update(t.Context(), wide)
		if err == nil {
			break
		}
		if !apierrors.IsInvalid(err) || size < 1<<10 {
			t.Fatal(err)
		}
	}
	claim()
	if err := n.env.Client.Get(t.Context(), client.ObjectKeyFromObject(wide), wide); err != nil {
		t.Fatal(err)
	}
	const most = 1 << 20
	raw, err := json.Marshal(wide)
	if err != nil || len(raw) > most || len(wide.Status.IPAM.V4.Pages) < 100 || len(wide.Status.IPAM.V6.Pages) < 100 {
		t.Errorf("the object has %d bytes (%v), %d and %d pages; want at most %d bytes, with pages of the other node's entry",
			len(raw), err, len(wide.Status.IPAM.V4.Pages), len(wide.Status.IPAM.V6.Pages), most)
	}
}

// Each node watches the metadata of all networks, and has 512 MiB.
func TestTenantFillsNoMetadata(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	many := func(n int) (all map[string]any) {
		all = map[string]any{}
		for i := range n {
			all[fmt.Sprintf("example.com/%d", i)] = strings.Repeat("x", 60)
		}
		return all
	}
	list := func(n int, each func(i int) any) (all []any) {
		for i := range n {
			all = append(all, each(i))
		}
		return all
	}
	for what, change := range map[string]func(*unstructured.Unstructured){
		"Labels":      setField(many(900), "metadata", "labels"),
		"Annotations": setField(many(900), "metadata", "annotations"),
		"Finalizers":  setField(list(3_000, func(i int) any { return fmt.Sprintf("example.com/finalizer-%d", i) }), "metadata", "finalizers"),
		"Owners": setField(list(1_200, func(i int) any {
			return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": strconv.Itoa(i), "uid": strconv.Itoa(i)}
		}), "metadata", "ownerReferences"),
		"Managed": addManagedFields(100 << 10),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := apitest.Name("net")
			made := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"NetworkID": "n" + name[len(name)-8:]}}}
			made.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(v1.KindTenantNetwork))
			made.SetNamespace(w.ns)
			made.SetName(name)
			if full := made.DeepCopy(); what == "Labels" { // each refused creation reserves an ID for a minute, and two at most
				change(full)
				if err := w.attacker.Create(t.Context(), full); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata must have at most 65536 bytes") {
					t.Errorf("create: got %.300v, want it refused for its size", err)
				}
			}
			if err := w.env.Client.Create(t.Context(), made); err != nil {
				t.Fatal(err)
			}
			for how, way := range writeMethods() {
				from := made.DeepCopy()
				if err := w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(made), from); err != nil {
					t.Fatal(err)
				}
				to := from.DeepCopy()
				change(to)
				_ = way(t.Context(), w.attacker, from, to)
				if err := w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(made), from); err != nil {
					t.Fatal(err)
				}
				if raw, err := from.MarshalJSON(); err != nil || len(raw) > 70_000 {
					t.Fatalf("%s: the object has %d bytes (%v)", how, len(raw), err)
				}
			}
		})
	}
}

// scatteredAddresses are addresses in an entry's text, at most so long, each on a page of its own.
func scatteredAddresses(first string, size int) string {
	const page, mostRanges = 1024, 4096
	from := netip.MustParseAddr(first)
	var all []string
	for i, length := 0, 0; i < mostRanges; i++ {
		sum := new(big.Int).Add(new(big.Int).SetBytes(from.AsSlice()), big.NewInt(int64(i)*page+page/2))
		a, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, from.BitLen()/8)))
		if length += len(a.String()) + 1; length > size {
			break
		}
		all = append(all, a.String())
	}
	return strings.Join(all, ",")
}
