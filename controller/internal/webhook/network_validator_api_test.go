// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// create creates an object of a kind; a "%" in the text is replaced by the device's name.
func create(t *testing.T, env *apitest.Env, kind, ns, device, text string) error {
	t.Helper()
	u := object(t, kind, ns, apitest.Name("net"), strings.ReplaceAll(text, "%", device))
	return env.Client.Create(t.Context(), u)
}

// Of two conflicting networks the younger one is rejected.
func TestConflicts(t *testing.T) {
	cases := map[string]struct {
		reason, older, younger string
		refused                []string
	}{
		"SharedLink": {reason: "Two networks share one VLAN link.", older: `{spec: {NetworkID: "a%", Options: {host_device: "%", vlan: 5, cidr: 10.0.0.0/24}}}`,
			younger: `{spec: {NetworkID: "b%", Options: {host_device: "%", vlan: 5, cidr: 10.0.1.0/24}}}`},
		"DisjointPools": {reason: "Two networks share a subnet with disjoint pools.", older: `{spec: {NetworkID: "a%", Options: {host_device: "%", cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.1, end: 10.0.0.9}}}}`,
			younger: `{spec: {NetworkID: "b%", Options: {host_device: "%", cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.19}}}}`},
		"Pools": {reason: "Both networks would allocate the same address.", older: `{spec: {NetworkID: "a%", Options: {host_device: "%", cidr: 10.0.0.0/24}}}`,
			younger: `{spec: {NetworkID: "b%", Options: {host_device: "%", cidr: 10.0.0.0/16}}}`, refused: []string{"allocation_pool", "10.0.0.1-10.0.0.254", "disjoint"}},
		"Pools6": {reason: "Both networks would allocate the same IPv6 address.", older: `{spec: {NetworkID: "a%", Options: {host_device: "%", vlan: 7, net6: "fd00::/64"}}}`,
			younger: `{spec: {NetworkID: "b%", Options: {host_device: "%", vlan: 7, net6: "fd00::/48"}}}`, refused: []string{"allocation_pool_v6", "fd00::", "disjoint"}},
		"OtherSegment": {reason: "The same subnet on another VLAN is another segment.", older: `{spec: {NetworkID: "a%", Options: {host_device: "%", vlan: 5, cidr: 10.0.0.0/24}}}`,
			younger: `{spec: {NetworkID: "b%", Options: {host_device: "%", vlan: 6, cidr: 10.0.0.0/24}}}`},
		"Name": {reason: "One link name would mean two links.", older: `{spec: {NetworkID: "a%", Options: {host_device: "%", vlan: 5}}}`,
			younger: `{spec: {NetworkID: "a%", Options: {host_device: "x%", vlan: 5}}}`, refused: []string{"must not give the name", "use another NetworkID"}},
		"NameOfNIC": {reason: "Our link would have the name of a NIC.", older: `{spec: {NetworkID: a, Options: {host_device: "%.7"}}}`,
			younger: `{spec: {NetworkID: "%", Options: {host_device: "x%", vlan: 7}}}`, refused: []string{"must not give the name", "another NetworkID"}},
		"Backend": {reason: "A parent supports one backend only.", older: `{spec: {NetworkID: "a%", NetworkType: ipvlan, Options: {host_device: "%", vlan: 5}}}`,
			younger: `{spec: {NetworkID: "b%", NetworkType: macvlan, Options: {host_device: "%", vlan: 5}}}`, refused: []string{"on the same parent", "must be ipvlan"}},
	}
	env := start(t)
	for name, tc := range cases {
		for _, kind := range []string{v1.KindClusterNetwork, v1.KindDanmNet} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				ns := env.Namespace(t)
				device := ns[len(ns)-8:]
				if err := create(t, env, v1.KindDanmNet, ns, device, tc.older); err != nil {
					t.Fatal(err)
				}
				if kind == v1.KindClusterNetwork {
					ns = ""
				}
				younger := func() error { return create(t, env, kind, ns, device, tc.younger) }
				if tc.refused != nil { // admission sees the older one a little later
					eventually(t, "the younger one is rejected", func() bool {
						u := object(t, kind, ns, apitest.Name("net"), strings.ReplaceAll(tc.younger, "%", device))
						err := env.Client.Create(t.Context(), u, client.DryRunAll)
						return err != nil && strings.Contains(err.Error(), tc.refused[0])
					})
				}
				checkAnswer(t, tc.reason, younger(), tc.refused)
			})
		}
	}
}

// A change of an older network that conflicts with a younger one is rejected.
func TestConflictByChange(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	device := ns[len(ns)-8:]
	older := object(t, v1.KindDanmNet, ns, "older", strings.ReplaceAll(`{spec: {NetworkID: "a%", NetworkType: ipvlan, Options: {host_device: "%", vlan: 5}}}`, "%", device))
	if err := env.Client.Create(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if err := create(t, env, v1.KindDanmNet, ns, device, `{spec: {NetworkID: "b%", NetworkType: macvlan, Options: {host_device: "%", vlan: 6}}}`); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"Options": {"vlan": 6}}}`))
	eventually(t, "the change is rejected", func() bool {
		err := env.Client.Patch(t.Context(), older.DeepCopy(), patch, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "on the same parent")
	})
}

// attach creates the objects of a Pod on a network.
func attach(t *testing.T, env *apitest.Env, o client.Object, kind string, pod *corev1.Pod, address string) *v1.DanmEp {
	t.Helper()
	o.SetFinalizers([]string{v1.InUseFinalizer})
	if err := env.Client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	ep := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: apitest.Name("ep")}, Spec: v1.DanmEpSpec{
		NetworkName: o.GetName(), NetworkUID: string(o.GetUID()), APIType: kind, Host: "n1", Pod: pod.Name, EndpointID: "x", CID: "y",
		Interface: v1.DanmEpInterface{Name: "eth1", Address: address},
	}}
	if err := env.Client.Create(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	return ep
}

// While Pods are attached, changes that would disconnect them are rejected, and so is the deletion.
func TestInUse(t *testing.T) {
	const spec = `{NetworkID: "%", NetworkType: macvlan, Options: {host_device: "%", vlan: 5, mtu: 1400, cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.99}}}`
	changes := map[string]struct {
		reason, patch string
		refused       []string
	}{
		"VLAN":     {"The VLAN is another segment.", `{"spec": {"Options": {"vlan": 6}}}`, []string{"spec.Options.vlan", "Pod", "web", "node n1", "keep 5"}},
		"Device":   {"The device is another parent.", `{"spec": {"Options": {"host_device": "other0"}}}`, []string{"spec.Options.host_device", "other0"}},
		"Type":     {"The type is another backend.", `{"spec": {"NetworkType": "ipvlan"}}`, []string{"spec.NetworkType", "keep macvlan"}},
		"MTU":      {"A Pod uses a higher MTU.", `{"spec": {"Options": {"mtu": 1300}}}`, []string{"spec.Options.mtu", "use 1400 or more"}},
		"CIDR":     {"Pods have addresses of the old subnet.", `{"spec": {"Options": {"cidr": "10.0.0.0/25"}}}`, []string{"spec.Options.cidr", "must contain 10.0.0.0/24"}},
		"Wider":    {"A wider subnet has all addresses in use.", `{"spec": {"Options": {"cidr": "10.0.0.0/16"}}}`, nil},
		"Gateway":  {"A Pod would get the packets of others.", `{"spec": {"Options": {"routes": {"10.9.0.0/16": "10.0.0.12"}}}}`, []string{"spec.Options.routes[10.9.0.0/16]", "10.0.0.12", "web", "the address of a router"}},
		"Pool":     {"An address in use is outside the new pool.", `{"spec": {"Options": {"allocation_pool": {"end": "10.0.0.11"}}}}`, []string{"spec.Options.allocation_pool", "10.0.0.12"}},
		"MorePMTU": {"A higher MTU disconnects no Pod.", `{"spec": {"Options": {"mtu": 1500}}}`, nil},
		"PoolEnd":  {"All addresses in use are in the new pool.", `{"spec": {"Options": {"allocation_pool": {"end": "10.0.0.20"}}}}`, nil},
		"Routes":   {"Routes apply to new Pods.", `{"spec": {"Options": {"routes": {"10.9.0.0/16": "10.0.0.1"}}}}`, nil},
		"Label":    {"Labels do not affect Pods.", `{"metadata": {"labels": {"a": "b"}}}`, nil},
	}
	const assigned = `host_device: "%", vlan: 5, ` // to a TenantNetwork
	env := start(t)
	for _, kind := range []string{v1.KindClusterNetwork, v1.KindDanmNet, v1.KindTenantNetwork} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			podNamespace, device := ns, ns[len(ns)-8:]
			changes, text, free := maps.Clone(changes), spec, `"vlan": 6, `
			switch kind {
			case v1.KindClusterNetwork:
				ns = ""
			case v1.KindTenantNetwork:
				_, device = offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "5"}]}`)
				text, free = strings.ReplaceAll(spec, assigned, ""), ""
				vlan := changes["VLAN"]
				vlan.refused = []string{"spec.Options.vlan", "never changes"}
				changes["VLAN"] = vlan
			}
			net := object(t, kind, ns, apitest.Name("net"), `{spec: `+strings.ReplaceAll(text, "%", device)+`}`)
			if err := env.Client.Create(t.Context(), net); err != nil {
				t.Fatal(err)
			}
			first := attach(t, env, net, kind, createPod(t, env, podNamespace, "web"), "10.0.0.12/24")
			second := attach(t, env, net, kind, createPod(t, env, podNamespace, "db"), "10.0.0.200/24")
			for name, tc := range changes {
				err := env.Client.Patch(t.Context(), net.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(tc.patch)), client.DryRunAll)
				if (err != nil) != (tc.refused != nil) {
					t.Errorf("%s: %s\ngot %v, want %q", name, tc.reason, err, tc.refused)
				}
				for _, part := range tc.refused {
					if err != nil && !strings.Contains(err.Error(), part) {
						t.Errorf("%s: %s\ngot %v, want %q in it", name, tc.reason, err, part)
					}
				}
			}
			checkAnswer(t, "two Pods are attached", env.Client.Delete(t.Context(), net), []string{net.GetName(), "in use", "1 more", "delete the Pods first"})
			for _, ep := range []*v1.DanmEp{first, second} {
				if err := env.Client.Delete(t.Context(), ep); err != nil {
					t.Fatal(err)
				}
			}
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"Options": {`+free+`"mtu": null, "cidr": "10.7.0.0/16", "allocation_pool": null}}}`))
			if err := env.Client.Patch(t.Context(), net.DeepCopy(), patch); err != nil {
				t.Errorf("with no Pod attached, all may change: %v", err)
			}
			if err := env.Client.Delete(t.Context(), net); err != nil {
				t.Errorf("delete with no Pod attached: %v", err)
			}
		})
	}
}

// Pre-allocated addresses are in the status: admission sees the status that a change replaces, so
// that no concurrent claim is missed.
func TestHeldAddressesCount(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	net := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "net"}, Spec: v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{Device: ns[len(ns)-8:], CIDR: "10.0.0.0/24"}}}
	if err := env.Client.Create(t.Context(), net); err != nil {
		t.Fatal(err)
	}
	net.Status.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{"n7": {UID: "u", Seq: 1, V4: "10.0.0.5-10.0.0.9"}}}
	if err := env.Client.Status().Update(t.Context(), net); err != nil {
		t.Fatal(err)
	}
	net.Spec.Options.CIDR = "10.1.0.0/24"
	checkAnswer(t, "n7 may give 10.0.0.5 to a Pod at any time", env.Client.Update(t.Context(), net), []string{"spec.Options.cidr", "node n7"})
}

func TestTenantConfigChanges(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	config, device := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}, {name: "y%"}], networkIds: {flannel: flan}}`)
	other, _ := offer(t, env, ns, `{hostDevices: [{name: "z%", vniType: vlan, vniRange: "1-9"}]}`)
	for name, spec := range map[string]string{"vlan": `{Options: {host_device: "` + device + `"}}`, "nic": `{Options: {host_device: "y` + device + `"}}`, "plugin": `{NetworkType: flannel}`} {
		if err := env.Client.Create(t.Context(), tenantNetwork(t, ns, name, spec)); err != nil {
			t.Fatal(err)
		}
	}
	const all = `{name: "%", vniType: vlan, vniRange: "100-110"}, {name: "y%"}`
	cases := map[string]struct {
		reason, name, patch string
		refused             []string
	}{
		"Shrink":  {reason: "The range still contains what is in use.", patch: `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100"}, {name: "y%"}]}`},
		"Range":   {reason: "VLAN 100 is in use.", patch: `{hostDevices: [{name: "%", vniType: vlan, vniRange: "101-110"}, {name: "y%"}]}`, refused: []string{"hostDevices", "vlan/%/100", ns + "/vlan", "delete the networks first"}},
		"Device":  {reason: "The device is in use.", patch: `{hostDevices: [{name: "y%"}]}`, refused: []string{"vlan/%/100"}},
		"NIC":     {reason: "The NIC is in use.", patch: `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`, refused: []string{"nic/y%/1", ns + "/nic"}},
		"Plugin":  {reason: "The plugin is in use.", patch: `{networkIds: null}`, refused: []string{"networkIds", "type/flannel/1", ns + "/plugin"}},
		"Grow":    {reason: "A TenantConfig may grow.", patch: `{hostDevices: [` + all + `, {name: "w%"}]}`},
		"Overlap": {reason: "Another TenantConfig offers these VLANs.", name: other, patch: `{hostDevices: [{name: "%", vniType: vlan, vniRange: "110-120"}]}`, refused: []string{"hostDevices[0].vniRange", "110-120", config, "disjoint"}},
		"Operator": {reason: "The operator does not exist.", patch: `{namespaceSelector: {matchLabels: null, matchExpressions: [{key: a, operator: Like, values: [b]}]}}`,
			refused: []string{"namespaceSelector", "NotIn"}},
		"EmptyIn": {reason: "Operator In needs values.", patch: `{namespaceSelector: {matchLabels: null, matchExpressions: [{key: a, operator: In}]}}`, refused: []string{"namespaceSelector", "values"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := object(t, "TenantConfig", "", config, strings.ReplaceAll(tc.patch, "%", device))
			if tc.name != "" {
				u.SetName(tc.name)
			}
			text, err := u.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			for i := range tc.refused {
				tc.refused[i] = strings.ReplaceAll(tc.refused[i], "%", device)
			}
			err = env.Client.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", text), client.DryRunAll)
			checkAnswer(t, tc.reason, err, tc.refused)
		})
	}
	tc := &v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: config}}
	checkAnswer(t, "three networks draw from it", env.Client.Delete(t.Context(), tc), []string{config, "delete the networks first"})
	tc.Name = other
	checkAnswer(t, "No network draws from it.", env.Client.Delete(t.Context(), tc), nil)
}

// A Pod is rejected when it is created, and not only when kubelet starts it.
func TestPods(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	device := ns[len(ns)-8:]
	net := object(t, v1.KindDanmNet, ns, "blue", strings.ReplaceAll(`{spec: {NetworkID: a, Options: {host_device: "%", cidr: 10.0.0.0/24}}}`, "%", device))
	if err := env.Client.Create(t.Context(), net); err != nil {
		t.Fatal(err)
	}
	closed := apitest.Name("closed")
	if err := env.Client.Create(t.Context(), object(t, v1.KindClusterNetwork, "", closed, strings.ReplaceAll(`{spec: {NetworkID: b, AllowedTenants: [other], Options: {host_device: "c%"}}}`, "%", device))); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, key, value string
		refused            []string
	}{
		"Good":    {"The Pod has two valid interfaces.", v1.InterfacesAnnotation, `[{"network": "blue", "ip": "dynamic"}, {"network": "blue", "ip": "10.0.0.7"}]`, nil},
		"Legacy":  {"The annotation has the name of DANM 4.3.", v1.LegacyInterfacesAnnotation, `[{"network": "blue", "ip": "10.9.0.7"}]`, []string{"metadata.annotations[danm.k8s.io/interfaces][0].ip", "10.9.0.7", "10.0.0.0/24"}},
		"ToCome":  {"The network may be created later.", v1.InterfacesAnnotation, `[{"network": "later"}]`, nil},
		"None":    {"The annotation is not ours.", "example.com/a", `{`, nil},
		"JSON":    {"The annotation must be JSON.", v1.InterfacesAnnotation, `[{"network": }]`, []string{"metadata.annotations[danm.io/interfaces]", "byte 13"}},
		"Key":     {"The key is misspelt.", v1.InterfacesAnnotation, `[{"nwtwork": "blue"}]`, []string{"[danm.io/interfaces][0]", "nwtwork"}},
		"Two":     {"An interface is on one network.", v1.InterfacesAnnotation, `[{"network": "blue", "clusterNetwork": "x"}]`, []string{"[0].clusterNetwork", "leave one out"}},
		"Tenant":  {"The network does not allow the namespace.", v1.InterfacesAnnotation, `[{"clusterNetwork": "` + closed + `"}]`, []string{"[danm.io/interfaces][0]", closed, "must contain the Pod's namespace"}},
		"Outside": {"The address must be in the subnet.", v1.InterfacesAnnotation, `[{"network": "blue", "ip": "10.0.1.7"}]`, []string{"[0].ip", "10.0.1.7", "10.0.0.0/24"}},
		"OtherNS": {"A reference must stay in its namespace.", v1.InterfacesAnnotation, `[{"network": "other/blue"}]`, []string{"[0].network", "other/blue"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", Annotations: map[string]string{tc.key: tc.value}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
			}
			var err error
			eventually(t, "the Pod's account is there", func() bool {
				err = env.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll)
				return err == nil || !strings.Contains(err.Error(), "serviceaccount")
			})
			checkAnswer(t, tc.reason, err, tc.refused)
		})
	}
}

func TestServices(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		selector    map[string]string
		refused     []string
	}{
		"Good":      {reason: "The annotations are complete.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`, "danm.io/network": "blue"}},
		"Ordinary":  {reason: "The Service has no annotation of ours.", selector: map[string]string{"app": "web"}},
		"JSON":      {reason: "The selector must be a map.", annotations: map[string]string{"danm.io/selector": `app=web`, "danm.io/network": "blue"}, refused: []string{"danm.io/selector", "app=web", "JSON map"}},
		"NoNetwork": {reason: "The Service must name a network.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`}, refused: []string{"danm.io/network", "clusterNetwork"}},
		"Legacy":    {reason: "The annotation is that of DANM 4.3.", annotations: map[string]string{"danm.k8s.io/tenantNetwork": "blue"}, refused: []string{"danm.io/selector"}},
		"Selecting": {reason: "Kubernetes would write endpoints too.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`, "danm.io/network": "blue"}, selector: map[string]string{"app": "web"}, refused: []string{"spec.selector", "leave it out"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: apitest.Name("s"), Annotations: tc.annotations}}
			s.Spec = corev1.ServiceSpec{ClusterIP: "None", Selector: tc.selector, Ports: []corev1.ServicePort{{Port: 80}}}
			checkAnswer(t, tc.reason, env.Client.Create(t.Context(), s, client.DryRunAll), tc.refused)
		})
	}
}
