// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/apitest/awkward"
)

// Whatever the API server accepts in any field can be decoded: else the daemons and the
// controller, which list a kind as a whole, stop at one object of it.
func TestAcceptedValuesCanBeDecoded(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		for kind, parts := range awkwardExamples() {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				var examples []string
				for _, part := range parts {
					examples = append(examples, "apiVersion: danm.io/v1\nkind: "+kind+"\n"+part)
				}
				awkward.Check(t, env, scheme, rejectedFields, examples...)
			})
		}
	})
}

// rejectedFields are DANM's bitmaps and cursors, which no new network or TenantConfig may have
// (TestTakeOver, TestTenantConfigRules).
var rejectedFields = []string{
	".hostDevices[].alloc",
	".spec.Options.alloc", ".spec.Options.alloc6",
	".spec.Options.allocation_pool.lastIp", ".spec.Options.allocation_pool_v6.lastIp",
}

// awkwardExamples have a value in every field of each kind but rejectedFields; a ClusterNetwork stands
// for all networks, which share its fields.
func awkwardExamples() map[string][]string {
	const conditions = `
  conditions: [{type: Ready, status: "True", reason: Valid, message: m, observedGeneration: 1, lastTransitionTime: "2026-01-02T15:04:05Z"}]
`
	return map[string][]string{
		v1.KindClusterNetwork: {`
spec:
  NetworkID: net
  NetworkType: ipvlan
  AllowedTenants: [a]
  Options:
    host_device: ens4
    vlan: 5
    container_prefix: eth
    mtu: 1500
    cidr: 10.0.0.0/24
    allocation_pool: {start: 10.0.0.5, end: 10.0.0.9}
    net6: fd00::/64
    allocation_pool_v6: {start: "fd00::5", end: "fd00::9", cidr: "fd00::/112"}
    routes: {10.1.0.0/16: 10.0.0.1}
    routes6: {"fd01::/16": "fd00::1"}
    static_pool: [{start: 10.0.0.1, end: 10.0.0.4}]
    rt_tables: 5
    conflict_probe: true
    source_guard: true
status:
  ipam:
    v4: {cidr: 10.0.0.0/24, cursor: 10.0.0.5, allocated: 1, pages: {"0": AQ==}}
    v6: {cidr: "fd00::/64", cursor: "fd00::5", allocated: 1, pages: {"0": AQ==}}
    held:
      node-1:
        uid: u
        seq: 1
        v4: 10.0.0.5
        v6: fd00::5
        rollback: {reason: OlderEntry, recoveryStartTime: "2026-01-02T15:04:05.123456Z"}
        quarantinedV4: 10.0.0.5
        quarantinedV6: fd00::5
    reclaimRequestTime: "2026-01-02T15:04:05.123456Z"
    recovering: {startTime: "2026-01-02T15:04:05.123456Z", reportedNodes: [node-1]}
    recoveryDeferredUntil: {node-1: "2026-01-02T15:04:05.123456Z"}
  pools: [{family: IPv4, capacity: 9, inUse: 1, warm: 1, cooldown: 1, reserved: 1, free: 6}]
  observedGeneration: 1
` + conditions, `
spec: {NetworkID: net, Options: {vxlan: 5, device_pool: example.com/a}}`, `
spec: {NetworkID: net, AllowedTenants: [a], Options: {host_device: ens4, trunk: true}}`, `
spec:
  NetworkID: net
  NetworkType: sriov
  Options:
    device_pool: example.com/a
    vlan: 5
    sriov: {vlan_qos: 1, vlan_protocol: 802.1q, spoof_check: true, trust: true, link_state: auto, min_tx_rate: 1, max_tx_rate: 2, promiscuous: true}`},
		"TenantConfig": {`
hostDevices: [{name: ens4, vniType: vlan, vniRange: "5-9"}]
networkIds: {flannel: net}
namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}
subnets: [10.0.0.0/8]
allowedClusterSubnets: [10.0.0.0/8]
budgets: {networks: 1, ids: 1, idsWithoutNetwork: 1}
status:
  reservations: {vlan/ens4/0: 5 ns/a 0123456789abcdef}`},
		"DanmEp": {`
spec:
  NetworkName: net
  NetworkUID: u
  NetworkType: ipvlan
  EndpointID: e
  Interface:
    Name: eth0
    Address: 10.0.0.5/24
    AddressIPv6: fd00::5/64
    MacAddress: "02:00:00:00:00:01"
    proutes: {10.1.0.0/16: 10.0.0.1}
    proutes6: {"fd01::/16": "fd00::1"}
    DeviceID: "0000:00:00.0"
    Representor: ens4r0
    Mtu: 1500
  Host: node-1
  HostUID: u
  Pod: a
  PodUID: u
  CID: c
  netns: /run/netns/a
  apiType: DanmNet`},
		"NetworkView": {`
count: 1
networks:
- {kind: DanmNet, name: a, type: ipvlan, cidr: 10.0.0.0/24, net6: "fd00::/64", pools: [{family: IPv4, capacity: 9, free: 6}], ready: "True"}`},
		"NodeNetwork": {`
status:
  nics:
  - {name: ens4, mac: "02:00:00:00:00:01", mtu: 1500, driver: virtio, speed: 1000, addresses: [10.0.0.1/24], sriov: {totalVFs: 8, numVFs: 4, address: "0000:03:00.0", mode: switchdev,
      functions: [{index: 0, address: "0000:03:10.0", driver: vfio-pci, userspace: true, representor: ens4r0}]}}
  links:
  - {name: net.5, identity: vlan/ens4/5, parent: ens4, mtu: 1500, vtep: 10.0.0.1, state: Up, error: e, networks: [ClusterNetwork/net]}
  delegates: [{networkType: flannel, networkID: net, error: e}]
  refused: [{network: ClusterNetwork/net, error: e}]
  nodeConfiguration: {file: 10-net.conflist, name: net, error: e}
  version: v1
  kernelVersion: "6.1"` + conditions},
	}
}
