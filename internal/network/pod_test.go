// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// podNetworks returns a function that finds the networks of the test.
func podNetworks(t *testing.T) func(network.Ref) *network.Network {
	t.Helper()
	specs := map[network.Ref]string{
		{Kind: v1.KindClusterNetwork, Name: "storage"}:             `{Options: {host_device: ens4, cidr: 10.0.0.0/24, container_prefix: stor, static_pool: [{start: 10.0.0.5, end: 10.0.0.99}]}}`,
		{Kind: v1.KindClusterNetwork, Name: "closed"}:              `{AllowedTenants: [other], Options: {host_device: ens4}}`,
		{Kind: v1.KindClusterNetwork, Name: "long"}:                `{Options: {host_device: ens4, container_prefix: abcdefghijklmn}}`,
		{Kind: v1.KindClusterNetwork, Name: "flannel"}:             `{NetworkType: flannel}`,
		{Kind: v1.KindClusterNetwork, Name: "going"}:               `{Options: {host_device: ens4}}`,
		{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "own"}: `{Options: {host_device: ens4}}`,
	}
	return func(ref network.Ref) *network.Network {
		text, ok := specs[ref]
		if !ok {
			return nil
		}
		n, err := network.FromObject(object(t, ref.Kind, text))
		if err != nil {
			t.Fatal(err)
		}
		n.Ref, n.Deleting = ref, ref.Name == "going"
		return n
	}
}

func TestPodChecker(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, value   string
		warned, refused []string
		scheme          string
	}{
		"Good":        {reason: "A Pod may have two interfaces.", value: `[{"clusterNetwork": "storage", "ip": "dynamic"}, {"clusterNetwork": "storage", "ip": "10.0.0.7"}]`},
		"Empty":       {reason: "A Pod with an empty list gets the default network.", value: `[]`},
		"JSON":        {reason: "The annotation must be JSON.", value: `{`, refused: []string{"metadata.annotations[danm.io/interfaces]", "must be JSON"}},
		"UnknownKey":  {reason: "A key with a typing error must not be ignored.", value: `[{"clusterNetwrok": "x"}]`, refused: []string{"[danm.io/interfaces][0]", "clusterNetwrok"}},
		"TwoNetworks": {reason: "An interface is in one network.", value: `[{"clusterNetwork": "a", "network": "b"}]`, refused: []string{"[0].clusterNetwork"}},
		"Tenant":      {reason: "The network is for another namespace.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "closed"}]`, refused: []string{"[danm.io/interfaces][1]", "ClusterNetwork/closed: spec.AllowedTenants must contain the Pod's namespace ns"}},
		"Outside":     {reason: "A static address must be in the subnet.", value: `[{"clusterNetwork": "storage", "ip": "10.0.1.7"}]`, refused: []string{"[0].ip", "10.0.1.7", "must be in the network's subnet 10.0.0.0/24"}},
		"StaticPool":  {reason: "A static address must be in the static pool.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "storage", "ip": "10.0.0.100"}]`, refused: []string{"[danm.io/interfaces][1].ip", `"10.0.0.100"`, "static_pool, which is 10.0.0.5-10.0.0.99"}},
		"Node":        {reason: "A static address must not be that of a node.", value: `[{"clusterNetwork": "storage", "ip": "10.0.0.7"}, {"clusterNetwork": "storage", "ip": "10.0.0.77/24"}]`, refused: []string{"[1].ip", `"10.0.0.77"`, "must not be an address of a node"}},
		"NoSubnet":    {reason: "The network has no subnet of the family.", value: `[{"clusterNetwork": "storage", "ip6": "dynamic"}]`, refused: []string{"[0].ip6", "no net6"}},
		"LongName":    {reason: "A name of 16 bytes is too long.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}]`, refused: []string{"[danm.io/interfaces][10]", "abcdefghijklmn10", "15 bytes"}},
		"Twice":       {reason: "Legacy names have no index.", scheme: network.NamingSchemeLegacy, value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "storage"}, {"clusterNetwork": "storage"}]`, refused: []string{"[danm.io/interfaces][2]", "stor", "interfaces[1] too"}},
		"ToCome":      {reason: "A missing network may be created later.", value: `[{"clusterNetwork": "later"}, {"network": "later"}]`, warned: []string{"[0]", "ClusterNetwork/later does not exist yet", "DanmNet/ns/later"}},
		"Going":       {reason: "A network that is being deleted may be created again.", value: `[{"clusterNetwork": "going"}]`, warned: []string{"ClusterNetwork/going is being deleted"}},
		"Broken":      {reason: "A network that is stored and invalid exists.", value: `[{"clusterNetwork": "broken"}]`, warned: []string{"ClusterNetwork/broken breaks a rule, which its next change must repair: the Pod waits for it"}},
		"OtherNS":     {reason: "A request cannot name a network of another namespace.", value: `[{"tenantNetwork": "other/own"}]`, refused: []string{"[0].tenantNetwork", "other/own"}},
		"Unassigned":  {reason: "The tenant has set an attribute that is not assigned.", value: `[{"tenantNetwork": "own"}]`, warned: []string{"TenantNetwork/ns/own", "host_device"}},
		"PluginIP":    {reason: "Another plugin manages addresses itself.", value: `[{"clusterNetwork": "flannel", "ip": "10.0.0.7"}]`, refused: []string{"[0].ip", "CNI plugin flannel"}},
		"PluginRoute": {reason: "Another plugin manages routes itself.", value: `[{"clusterNetwork": "flannel", "ip": "dynamic", "proutes": {"10.9.0.0/16": "10.0.0.1"}}]`, refused: []string{"[0].proutes", "CNI plugin flannel"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker := network.PodChecker{
				NamingScheme: tc.scheme, NetworkOf: podNetworks(t),
				IsInvalid:     func(ref network.Ref) bool { return ref.Name == "broken" },
				IsNodeAddress: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.77") },
			}
			found, err := checker.Check(network.PodTemplate{Namespace: "ns", Annotations: map[string]string{v1.InterfacesAnnotation: tc.value}})
			warnings := found.Waits
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nCheck: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nCheck: got %q, want %q in it", tc.reason, err, part)
				}
			}
			if (len(warnings) > 0) != (tc.warned != nil) {
				t.Errorf("%s\nCheck warns %q", tc.reason, warnings)
			}
			for _, part := range tc.warned {
				if !strings.Contains(strings.Join(warnings, "\n"), part) {
					t.Errorf("%s\nCheck warns %q, want %q", tc.reason, warnings, part)
				}
			}
		})
	}
}

// A webhook waits for these to appear in its cache.
func TestMissingNetworks(t *testing.T) {
	t.Parallel()
	later := network.Ref{Kind: v1.KindClusterNetwork, Name: "later"}
	cases := map[string]struct {
		reason, value string
		hostNetwork   bool
		want          []network.Ref
	}{
		"Exists":      {reason: "The networks exist, also the invalid one and the one that is being deleted.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "broken"}, {"clusterNetwork": "going"}]`},
		"Missing":     {reason: "One does not exist.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "later"}]`, want: []network.Ref{later}},
		"Invalid":     {reason: "Check rejects the Pod at once.", value: `[{"clusterNetwork": "later", "x": 1}]`},
		"HostNetwork": {reason: "The Pod waits for no network.", value: `[{"clusterNetwork": "later"}]`, hostNetwork: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker := network.PodChecker{NetworkOf: podNetworks(t), IsInvalid: func(ref network.Ref) bool { return ref.Name == "broken" }}
			got, _ := checker.Check(network.PodTemplate{Namespace: "ns", Annotations: map[string]string{v1.InterfacesAnnotation: tc.value}, HostNetwork: tc.hostNetwork})
			if diff := cmp.Diff(tc.want, got.Missing); diff != "" {
				t.Errorf("%s\nmissing (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Requests that work, and probably not as the user intends, are warnings.
func TestPodMistakes(t *testing.T) {
	t.Parallel()
	const interfaces = v1.InterfacesAnnotation
	networks := podNetworks(t)
	withDefault := func(ref network.Ref) *network.Network {
		if ref == (network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}) {
			return &network.Network{Ref: ref, Type: "flannel"}
		}
		return networks(ref)
	}
	const first = `{"clusterNetwork": "default"}, `
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		hostNetwork bool
		noDefault   bool
		path        *field.Path
		want        []string
	}{
		"None":        {reason: "A Pod without annotations has none.", hostNetwork: true},
		"Intended":    {reason: "The Pod requests an address after the default network.", annotations: map[string]string{interfaces: `[` + first + `{"clusterNetwork": "storage", "ip": "dynamic"}]`}},
		"HostNetwork": {reason: "The CNI plugin is not called, and the Pod waits for no network.", hostNetwork: true, annotations: map[string]string{interfaces: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "later"}]`}, want: []string{"spec.hostNetwork: the Pod uses the node's network, so metadata.annotations[danm.io/interfaces] has no effect: remove one of the two"}},
		"Typo":        {reason: "A key with a typing error is not read.", annotations: map[string]string{"danm.io/interface": `[]`}, want: []string{"metadata.annotations[danm.io/interface]: Patchbay has no such key, so it has no effect: did you mean danm.io/interfaces?"}},
		"OtherKey":    {reason: "DANM's other keys are not for Pods.", annotations: map[string]string{"danm.k8s.io/x": ""}, want: []string{"metadata.annotations[danm.k8s.io/x]: Patchbay has no such key, so it has no effect: remove it, or use one of danm.io/interfaces, danm.k8s.io/interfaces, danm.io/node-affinity"}},
		"Multus":      {reason: "Patchbay does not add the interfaces of another plugin's annotation.", annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "a"}, want: []string{"metadata.annotations[k8s.v1.cni.cncf.io/networks]: Patchbay does not serve NetworkAttachmentDefinitions yet, so only another plugin, such as Multus, adds these interfaces: use danm.io/interfaces for Patchbay's networks"}},
		"First":       {reason: "The Pod's IP is not in the cluster's network.", annotations: map[string]string{interfaces: `[{"clusterNetwork": "storage", "ip": "dynamic"}]`}, want: []string{`metadata.annotations[danm.io/interfaces][0]: the Pod's IP, which Services and probes use, is that of its first interface, in ClusterNetwork/storage: put {"clusterNetwork": "default"} before it if the Pod needs the default network`}},
		"NoDefault":   {reason: "Without a default network another one must be first.", noDefault: true, annotations: map[string]string{interfaces: `[{"clusterNetwork": "storage", "ip": "dynamic"}]`}},
		"Delegate":    {reason: "Another plugin's network may be the cluster's own.", annotations: map[string]string{interfaces: `[{"clusterNetwork": "flannel"}]`}},
		"NoAddress":   {reason: "The address is left out.", annotations: map[string]string{interfaces: `[` + first + `{"clusterNetwork": "storage"}]`}, want: []string{`metadata.annotations[danm.io/interfaces][1]: the Pod gets no address of ClusterNetwork/storage: set ip to "dynamic", or to "none" if this is intended`}},
		"Declined":    {reason: "The missing address is intended.", annotations: map[string]string{interfaces: `[` + first + `{"clusterNetwork": "storage", "ip": "none"}]`}},
		"NoSubnet":    {reason: "The network has no addresses.", annotations: map[string]string{interfaces: `[` + first + `{"clusterNetwork": "long"}]`}},
		"OtherKind": {reason: "The name is that of another kind's network.", annotations: map[string]string{interfaces: `[` + first + `{"network": "storage"}, {"network": "going"}, {"network": "closed"}]`}, want: []string{
			"metadata.annotations[danm.io/interfaces][1]: DanmNet/ns/storage does not exist, but ClusterNetwork/storage exists: use clusterNetwork",
			"metadata.annotations[danm.io/interfaces][2]: DanmNet/ns/going does not exist yet: the Pod waits for it; if its NetworkType is sriov, create the Pod again",
			"metadata.annotations[danm.io/interfaces][3]: DanmNet/ns/closed does not exist yet: the Pod waits for it; if its NetworkType is sriov, create the Pod again",
		}},
		"Template": {reason: "The path is the template's.", path: field.NewPath("spec", "template"), annotations: map[string]string{"danm.io/interface": `[]`}, want: []string{"spec.template.metadata.annotations[danm.io/interface]: Patchbay has no such key, so it has no effect: did you mean danm.io/interfaces?"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker := network.PodChecker{NetworkOf: withDefault}
			if tc.noDefault {
				checker.NetworkOf = networks
			}
			got, err := checker.Check(network.PodTemplate{Namespace: "ns", Path: tc.path, Annotations: tc.annotations, HostNetwork: tc.hostNetwork})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.All()); diff != "" {
				t.Errorf("%s\nwarnings (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The user of a wrong kind learns which network of the name the Pod can have.
func TestSuggestKind(t *testing.T) {
	t.Parallel()
	cluster := network.Ref{Kind: v1.KindClusterNetwork, Name: "storage"}
	tenant := network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "storage"}
	danm := network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "storage"}
	cases := map[string]struct {
		reason  string
		network network.Network
		ref     network.Ref
		want    string
	}{
		"Cluster":  {"A network of the cluster is no network of the namespace.", network.Network{Ref: cluster}, danm, "ClusterNetwork/storage exists: use clusterNetwork"},
		"Tenant":   {"A tenant's network is no network of the cluster.", network.Network{Ref: tenant}, cluster, "TenantNetwork/ns/storage exists: use tenantNetwork"},
		"DANM":     {"A DanmNet is no TenantNetwork.", network.Network{Ref: danm}, tenant, "DanmNet/ns/storage exists: use network"},
		"Closed":   {"A namespace learns nothing about networks of others.", network.Network{Ref: cluster, AllowedTenants: []string{"other"}}, danm, ""},
		"Deleting": {"A network that is being deleted accepts no Pod.", network.Network{Ref: cluster, Deleting: true}, danm, ""},
		"Itself":   {"The same kind is no suggestion.", network.Network{Ref: danm}, danm, ""},
		"Foreign":  {"A Pod cannot name a network of another namespace.", network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "other", Name: "storage"}}, danm, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := network.SuggestKind(tc.ref, "ns", func(ref network.Ref) *network.Network {
				if ref == tc.network.Ref {
					return &tc.network
				}
				return nil
			})
			if got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A tenant's Pod with many keys gets few warnings.
func TestManyUnknownAnnotations(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 1000 {
		many["danm.io/x"+strconv.Itoa(i)] = ""
	}
	if got := network.UnknownAnnotations(field.NewPath("metadata", "annotations"), many, nil); len(got) != 9 || !strings.Contains(got[8], "more keys") {
		t.Errorf("got %q, want 8 and that there are more", got)
	}
}
