// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// needyNetworks returns a checker with networks that require devices and NICs.
func needyNetworks(t *testing.T, more map[network.Ref]string) *network.PodChecker {
	t.Helper()
	cluster := func(name string) network.Ref { return network.Ref{Kind: v1.KindClusterNetwork, Name: name} }
	specs := map[network.Ref]string{
		cluster("fast"):    `{NetworkType: sriov, Options: {device_pool: a.b/fast}}`,
		cluster("faster"):  `{NetworkType: SRIOV, Options: {device_pool: a.b/fast, vlan: 5}}`,
		cluster("other"):   `{NetworkType: sriov, Options: {device_pool: a.b/other}}`,
		cluster("bad"):     `{NetworkType: sriov, Options: {device_pool: nonsense}}`,
		cluster("closed"):  `{NetworkType: sriov, AllowedTenants: [other], Options: {device_pool: a.b/closed}}`,
		cluster("going"):   `{NetworkType: sriov, Options: {device_pool: a.b/going}}`,
		cluster("pooled"):  `{Options: {device_pool: a.b/fast}}`,
		cluster("vlan"):    `{Options: {host_device: ens5, vlan: 7}}`,
		cluster("vxlan"):   `{NetworkType: macvlan, Options: {host_device: ens4, vxlan: 7}}`,
		cluster("flannel"): `{NetworkType: flannel}`,
		cluster("moved"):   `{NetworkType: host-device, Options: {host_device: ens8}}`,
		cluster("shared"):  `{NetworkType: macvtap, Options: {host_device: ens8, vlan: 9}}`,
		{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "forged"}: `{NetworkType: sriov, Options: {device_pool: a.b/theirs}}`,
	}
	maps.Copy(specs, more)
	return &network.PodChecker{NetworkOf: func(ref network.Ref) *network.Network {
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
	}}
}

// interfaces is an annotation with an interface in each of these ClusterNetworks.
func interfaces(names ...string) map[string]string {
	var entries []string
	for _, name := range names {
		entries = append(entries, `{"clusterNetwork": "`+name+`"}`)
	}
	return map[string]string{v1.InterfacesAnnotation: "[" + strings.Join(entries, ", ") + "]"}
}

func TestPodNeeds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		hostNetwork bool
		// standard is the spec of the ClusterNetwork default.
		standard string
		pools    string // each with its networks
		nics     []string
	}{
		"None":         {reason: "Another plugin finds its device itself.", annotations: interfaces("flannel")},
		"Device":       {reason: "An interface on a network of virtual functions needs one.", annotations: interfaces("flannel", "fast"), pools: "a.b/fast ClusterNetwork/fast"},
		"Pools":        {reason: "Several pools are several resources.", annotations: interfaces("other", "fast"), pools: "a.b/fast ClusterNetwork/fast; a.b/other ClusterNetwork/other"},
		"OnePool":      {reason: "Each interface needs a device of its own.", annotations: interfaces("fast", "faster", "fast"), pools: "a.b/fast ClusterNetwork/fast ClusterNetwork/faster ClusterNetwork/fast"},
		"OtherType":    {reason: "IPVLAN reads no device pool.", annotations: interfaces("pooled")},
		"NotAllowed":   {reason: "The Pod is rejected, and its author must not learn of the pool.", annotations: interfaces("closed")},
		"Deleting":     {reason: "No Pod joins the network, and the next one of that name may have another pool.", annotations: interfaces("going")},
		"Missing":      {reason: "Nothing is known of the network.", annotations: interfaces("later")},
		"Forged":       {reason: "No TenantConfig has assigned the pool.", annotations: map[string]string{v1.InterfacesAnnotation: `[{"tenantNetwork": "forged"}]`}},
		"Invalid":      {reason: "The Pod is rejected.", annotations: map[string]string{v1.InterfacesAnnotation: `[{"clusterNetwork": "fast"}, {}]`}},
		"HostNetwork":  {reason: "The Pod gets no interface.", annotations: interfaces("fast", "vlan"), hostNetwork: true},
		"OldKey":       {reason: "DANM's key has the same meaning.", annotations: map[string]string{v1.LegacyInterfacesAnnotation: interfaces("fast")[v1.InterfacesAnnotation]}, pools: "a.b/fast ClusterNetwork/fast"},
		"NICs":         {reason: "VLANs and VXLANs are made on a NIC.", annotations: interfaces("vlan", "vxlan", "vlan"), nics: []string{"ens4", "ens5"}},
		"Moved":        {reason: "Another plugin may move the NIC into the Pod.", annotations: interfaces("moved")},
		"Shared":       {reason: "Another plugin uses a VLAN that Patchbay makes on the NIC.", annotations: interfaces("shared"), nics: []string{"ens8"}},
		"Default":      {reason: "A Pod without an annotation gets the default network.", standard: `{NetworkType: sriov, Options: {device_pool: a.b/eth}}`, pools: "a.b/eth ClusterNetwork/default"},
		"EmptyList":    {reason: "A Pod with an empty list gets the default network.", annotations: interfaces(), standard: `{Options: {host_device: ens9}}`, nics: []string{"ens9"}},
		"NotDefault":   {reason: "A Pod with a list does not get the default network.", annotations: interfaces("fast"), standard: `{Options: {host_device: ens9}}`, pools: "a.b/fast ClusterNetwork/fast"},
		"NoDefault":    {reason: "There is no default network."},
		"DefaultThere": {reason: "The Pod may not join the default network.", standard: `{AllowedTenants: [other], Options: {host_device: ens9}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			more := map[network.Ref]string{}
			if tc.standard != "" {
				more[network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}] = tc.standard
			}
			got := needyNetworks(t, more).Needs(network.PodTemplate{Namespace: "ns", Annotations: tc.annotations, HostNetwork: tc.hostNetwork})
			var pools []string
			for _, need := range got.Pools {
				text := need.Pool
				for _, ref := range need.Networks {
					text += " " + ref.String()
				}
				pools = append(pools, text)
			}
			if diff := cmp.Diff(tc.pools, strings.Join(pools, "; ")); diff != "" {
				t.Errorf("%s\npools (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.nics, got.NICs); diff != "" {
				t.Errorf("%s\nNICs (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// resources returns a list of resources from names and quantities.
func resources(pairs ...string) map[string]resource.Quantity {
	list := map[string]resource.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		list[pairs[i]] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestPodDevices(t *testing.T) {
	t.Parallel()
	first, second := field.NewPath("spec", "containers").Index(0), field.NewPath("spec", "containers").Index(1)
	sidecar, otherInit := field.NewPath("spec", "initContainers").Index(0), field.NewPath("spec", "initContainers").Index(1)
	inTemplate := field.NewPath("spec", "template")
	cases := map[string]struct {
		reason     string
		networks   []string
		template   *field.Path
		mirror     bool
		bare       bool // without an annotation, on a default network
		containers []network.PodContainer
		want       string // the error
		warned     string
		waits      string
	}{
		"Enough": {reason: "The webhook has added it.", networks: []string{"fast", "faster"},
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "2"), Limits: resources("a.b/fast", "2")}}},
		"More": {reason: "The second device would have no VLAN.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "1")}, {Path: second, Requests: resources("a.b/fast", "6")}},
			want:       `spec.containers[1].resources.requests[a.b/fast]: Invalid value: 7: must be 1 in all containers together, one for each interface in ClusterNetwork/fast, because a device without an interface has no VLAN and no other setting of the network: request 1, or leave the resource out so that Patchbay adds it, or request more interfaces`},
		"OtherPool": {reason: "No network of the Pod has the pool, and a quota bounds it.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "1", "a.b/other", "5")}}},
		"MoreAndMissing": {reason: "The network that does not exist yet may have the same pool.", networks: []string{"fast", "later"},
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "2")}},
			waits:      "metadata.annotations[danm.io/interfaces][1]: ClusterNetwork/later does not exist yet: the Pod waits for it; if its NetworkType is sriov, create the Pod again"},
		"Init": {reason: "kubelet gives the device to the containers afterwards.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: sidecar, Ends: true, Requests: resources("a.b/fast", "1")}, {Path: first, Requests: resources("a.b/fast", "1")}}},
		"InitMore": {reason: "The init container would have a device without a VLAN.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: sidecar, Ends: true, Requests: resources("a.b/fast", "2")}, {Path: first, Requests: resources("a.b/fast", "1")}},
			want:       `spec.initContainers[0].resources.requests[a.b/fast]: Invalid value: 2: must be 1 in all containers together`},
		"InitBesideSidecar": {reason: "The sidecar keeps its device while the init container runs.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: sidecar, Requests: resources("a.b/fast", "1")}, {Path: otherInit, Ends: true, Requests: resources("a.b/fast", "1")}},
			want:       `spec.initContainers[1].resources.requests[a.b/fast]: Invalid value: 2: must be 1 in all containers together`},
		"InitBeforeSidecar": {reason: "kubelet gives the device to the sidecar.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: sidecar, Ends: true, Requests: resources("a.b/fast", "1")}, {Path: otherInit, Requests: resources("a.b/fast", "1")}}},
		"InitOnly": {reason: "The container gets none.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: sidecar, Ends: true, Requests: resources("a.b/fast", "1")}, {Path: first, Requests: resources("a.b/fast", "0")}},
			want:       `spec.containers[0].resources.requests[a.b/fast]: Invalid value: 0: must be 1`},
		"Huge": {reason: "The sum of great numbers is no small one.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "9E")}, {Path: second, Requests: resources("a.b/fast", "9E")}},
			want:       `spec.containers[1].resources.requests[a.b/fast]: Invalid value: 8589934592: must be 1`},
		"Together": {reason: "kubelet gives devices to containers, and the node daemon uses them for the Pod.", networks: []string{"fast", "faster"},
			containers: []network.PodContainer{{Path: sidecar, Requests: resources("a.b/fast", "1")}, {Path: second, Requests: resources("a.b/fast", "1")}}},
		"Fewer": {reason: "One interface would have no device.", networks: []string{"fast", "other", "faster", "fast"},
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/other", "1", "cpu", "1")}, {Path: second, Requests: resources("a.b/fast", "2")}},
			want:       `spec.containers[1].resources.requests[a.b/fast]: Invalid value: 2: must be 3 in all containers together, one for each interface in ClusterNetwork/fast, ClusterNetwork/faster (init containers that end do not count): request 3, or leave the resource out so that Patchbay adds it`},
		"Zero": {reason: "The author has written a number.", networks: []string{"fast"},
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "0")}},
			want:       `spec.containers[0].resources.requests[a.b/fast]: Invalid value: 0: must be 1`},
		"Unrequested": {reason: "The mutating webhook did not answer, or did not know the network yet.", networks: []string{"fast", "fast"},
			want: `spec.containers[0].resources.limits[a.b/fast]: Required value: must be 2, one for each interface in ClusterNetwork/fast, and Patchbay has not added it: create the Pod again, or set it to 2 in limits and requests`},
		"Bare": {reason: "The mutating webhook is not called for Pods without an annotation.", bare: true,
			want: `spec.containers[0].resources.limits[a.b/eth]: Required value: must be 1, one for each interface in ClusterNetwork/default, and Patchbay has not added it: set the annotation danm.io/interfaces to "[]" for the default network, or set the resource to 1 in limits and requests`},
		"Template": {reason: "The webhook adds the request to the Pods.", networks: []string{"fast"}, template: inTemplate},
		"TemplateFewer": {reason: "The user of a workload does not see the answer to its Pods. A template may have limits only.", networks: []string{"fast", "fast"}, template: inTemplate,
			containers: []network.PodContainer{{Path: inTemplate.Child("spec", "containers").Index(0), Limits: resources("a.b/fast", "1")}},
			want:       `spec.template.spec.containers[0].resources.limits[a.b/fast]: Invalid value: 1: must be 2`},
		"TemplateMore": {reason: "Its Pods would be rejected.", networks: []string{"fast"}, template: inTemplate,
			containers: []network.PodContainer{{Path: inTemplate.Child("spec", "containers").Index(0), Limits: resources("a.b/fast", "2")}},
			want:       `spec.template.spec.containers[0].resources.limits[a.b/fast]: Invalid value: 2: must be 1`},
		"MirrorMore": {reason: "To reject the mirror does not stop the Pod.", networks: []string{"fast"}, mirror: true,
			containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "2")}},
			warned:     "spec.containers: the Pod's interfaces need 1 of a.b/fast, and its containers request 2, so its node refuses it: request as many in the file of the static Pod"},
		"Mirror": {reason: "To reject the mirror does not stop the Pod.", networks: []string{"fast"}, mirror: true,
			warned: "spec.containers: the Pod's interfaces need 1 of a.b/fast, and its containers request 0, so its node refuses it: request as many in the file of the static Pod"},
		"NoResource": {reason: "Kubernetes rejects each request for the pool, by users and by admission.", networks: []string{"bad"},
			want: `metadata.annotations[danm.io/interfaces]: Invalid value: "nonsense": the device_pool of ClusterNetwork/bad must be the resource of a device plugin, such as "example.com/sriov_ens4", which no container can request: ask a netadmin to correct it`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker := needyNetworks(t, nil)
			p := network.PodTemplate{Namespace: "ns", Path: tc.template, Annotations: interfaces(tc.networks...), Mirror: tc.mirror, Containers: tc.containers}
			if tc.bare {
				checker = needyNetworks(t, map[network.Ref]string{{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}: `{NetworkType: sriov, Options: {device_pool: a.b/eth}}`})
				p.Annotations = nil
			}
			warnings, err := checker.Check(p)
			text := errorText(err)
			if !strings.HasPrefix(text, tc.want) || tc.want == "" && text != "" {
				t.Errorf("%s\ngot  %s\nwant %s", tc.reason, text, tc.want)
			}
			if got := strings.Join(warnings.Mistakes, "\n"); got != tc.warned {
				t.Errorf("%s\ngot warning  %q\nwant %q", tc.reason, got, tc.warned)
			}
			if got := strings.Join(warnings.Waits, "\n"); got != tc.waits {
				t.Errorf("%s\ngot wait  %q\nwant %q", tc.reason, got, tc.waits)
			}
		})
	}
}

func TestAffinityTermsAreBounded(t *testing.T) {
	t.Parallel()
	const tooMany = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: 101: must have at most 100 terms, because Patchbay adds the NICs of the Pod's networks to each: use fewer terms, or set the annotation danm.io/node-affinity to \"none\""
	cases := map[string]struct {
		reason, network string
		terms           int
		template        *field.Path
		want            string
	}{
		"Most":     {reason: "Each term gets the NIC.", network: "vlan", terms: network.MaxAffinityTerms},
		"More":     {reason: "The Pod would become huge.", network: "vlan", terms: network.MaxAffinityTerms + 1, want: tooMany},
		"Template": {reason: "Its Pods would be rejected.", network: "vlan", terms: network.MaxAffinityTerms + 1, template: field.NewPath("spec", "template"), want: "spec.template." + tooMany},
		"NoNIC":    {reason: "Nothing is added.", network: "fast", terms: 1000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := network.PodTemplate{Namespace: "ns", Path: tc.template, Annotations: interfaces(tc.network), AffinityTerms: tc.terms}
			p.Containers = []network.PodContainer{{Path: field.NewPath("spec"), Requests: resources("a.b/fast", "1")}}
			_, err := needyNetworks(t, nil).Check(p)
			if got := errorText(err); got != tc.want {
				t.Errorf("%s\ngot  %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNeedsDeviceRequest(t *testing.T) {
	t.Parallel()
	first := field.NewPath("spec", "containers").Index(0)
	cases := map[string]struct {
		reason, pool string
		containers   []network.PodContainer
		want         bool
	}{
		"None":       {reason: "No container has the resource.", pool: "a.b/fast", containers: []network.PodContainer{{Path: first, Requests: resources("cpu", "1")}}, want: true},
		"Requests":   {reason: "The author has written a number.", pool: "a.b/fast", containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "1")}}},
		"Limits":     {reason: "The API server makes requests of limits.", pool: "a.b/fast", containers: []network.PodContainer{{Path: first, Limits: resources("a.b/fast", "1")}}},
		"Zero":       {reason: "The author has written a number.", pool: "a.b/fast", containers: []network.PodContainer{{Path: first, Requests: resources("a.b/fast", "0")}}},
		"Init":       {reason: "The init container's device is for the time until it ends.", pool: "a.b/fast", containers: []network.PodContainer{{Path: first, Ends: true, Requests: resources("a.b/fast", "1")}}, want: true},
		"Plain":      {reason: "Device plugins have a domain.", pool: "cpu"},
		"Kubernetes": {reason: "The domain is reserved.", pool: "kubernetes.io/cpu"},
		"Quota":      {reason: "The prefix is that of quotas.", pool: "requests.a.b/fast"},
		"TwoSlashes": {reason: "The API server rejects the name.", pool: "a.b/c/d"},
		"Long":       {reason: "A name has 63 characters at most.", pool: "a.b/" + strings.Repeat("c", 64)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := network.PodTemplate{Containers: tc.containers}
			if got := p.NeedsDeviceRequest(tc.pool); got != tc.want {
				t.Errorf("%s\nNeedsDeviceRequest(%q): got %t", tc.reason, tc.pool, got)
			}
		})
	}
}

func TestNodeAffinityAnnotation(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, value, want string }{
		"None": {reason: "The Pod opts out.", value: "none"},
		"Other": {reason: "A typing error must not be without effect.", value: "None",
			want: `metadata.annotations[danm.io/node-affinity]: Unsupported value: "None": supported values: "none"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warnings, err := needyNetworks(t, nil).Check(network.PodTemplate{Namespace: "ns", Annotations: map[string]string{v1.NodeAffinityAnnotation: tc.value}})
			if got := errorText(err); got != tc.want || len(warnings.All()) > 0 {
				t.Errorf("%s\ngot %s with warnings %q\nwant %s", tc.reason, got, warnings.All(), tc.want)
			}
		})
	}
}

// errorText returns the text of an error; "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
