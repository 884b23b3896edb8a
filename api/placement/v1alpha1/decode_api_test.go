// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/apitest/awkward"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// atEachVersion runs a test with the lab's Kubernetes and with the oldest supported one, with the CRDs of
// hub and cluster.
func atEachVersion(t *testing.T, test func(t *testing.T, env *apitest.Env)) {
	t.Helper()
	for name, start := range map[string]func(testing.TB) *apitest.Env{"Current": apitest.Start, "Oldest": apitest.StartOldest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := start(t)
			if err := bed.Install(t.Context(), env.Config, "placement/crds", "CustomResourceDefinition"); err != nil {
				t.Fatal(err)
			}
			test(t, env)
		})
	}
}

// The hub can decode each value that the API server accepts: else one user of a namespace, or the agent of
// one cluster, could stop the hub for all.
func TestAcceptedValuesCanBeDecoded(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		for kind, example := range examples() {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				rejected := []string{".spec.declaredLost.lastHeartbeat"} // but for what the hub has written, and not in a new Cluster
				awkward.Check(t, env, scheme, rejected, "apiVersion: placement.patchbay.io/v1alpha1\nkind: "+kind+"\n"+example)
			})
		}
	})
}

const (
	condition  = `{type: Ready, status: "True", reason: AsExpected, message: m, observedGeneration: 1, lastTransitionTime: "2026-01-02T15:04:05Z"}`
	selector   = `{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}`
	reference  = `{group: apps, version: v1, kind: Deployment, resource: deployments, namespace: shop, name: web, uid: u}`
	associated = `{pods: {Running: 1}, broken: [{name: a, reason: r, message: m}]}`
	apply      = `{conflict: Refuse, createOnly: [spec.a], yield: [spec.b]}`

	policy = `
  objects: [{group: apps, kind: Deployment, names: [web], selector: ` + selector + `}]
  clusters:
    names: [east]
    selector: ` + selector + `
    count: 1
    tolerations: [{key: a, value: b, effect: NoExecute}]
    spread: zone
  replicas: {mode: Divide, weights: {east: 1}, min: {east: 1}, max: {east: 1}, by: Static}
  move: {mode: MakeBeforeBreak, surge: 1, unavailable: 25%, settle: 90s, stable: 30s, deadline: 1h30m, onDeadline: Hold}
  offline: {assumeLostAfter: 10m}
  status: {mode: Auto, associated: Counts}
  apply: ` + apply + `
  onDelete: Delete
  onUnselected: Keep
  volumes: Refuse
  follow: true
`
	policyStatus = `
status: {observedGeneration: 1, conditions: [` + condition + `]}
`
	workSpec = `
    hubUID: u
    epoch: e
    term: 1
    revision: 1
    history: [{term: 1, revision: 1}]
    source: ` + reference + `
    sourceGeneration: 1
    podSecurity: {enforce: baseline}
    manifests:
    - object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
      resource: configmaps
      secret: {version: v}
    apply: ` + apply + `
    associated: Counts
    onDelete: Orphan
    removal: {policy: Delete, sourceUID: u, uids: [u]}
    minReplicas: 1
    volume: {action: Bind, source: ` + volumeSource + `}
    traffic:
      subnets: [10.77.0.0/16]
      endpoints: [` + endpoints + `]
      withdrawn: [{cluster: east, work: deployment-web, time: "2026-01-02T15:04:05.123456Z"}]
`
	volumeSource = `{driver: csi.example.com, handle: h, fsType: ext4, readOnly: true, attributes: {a: b}, accessModes: [ReadWriteOnce], volumeMode: Filesystem, capacity: 1Gi, storageClass: fast}`
	endpoints    = `{cluster: east, work: deployment-web, addresses: [10.77.0.1], ports: [{name: http, protocol: TCP, port: 80, appProtocol: http}]}`
)

// examples has an object of each kind with a value in each field.
func examples() map[string]string {
	return map[string]string{
		"Placement":        "spec:" + policy + policyStatus,
		"ClusterPlacement": "spec:" + policy + "  namespaceSelector: " + selector + policyStatus,
		"Customization": `
spec:
  match: {kinds: [Deployment.apps], selector: ` + selector + `, clusterSelector: ` + selector + `}
  rules: [{path: spec.a, op: set, cel: "1"}, {path: spec.a, value: 1}]` + policyStatus,
		"Cluster": `
spec:
  accepted: true
  unschedulable: true
  taints: [{key: a, value: b, effect: NoSchedule}]
  drain: {mode: Move, maxConcurrentMoves: 1, deadline: "2026-01-02T15:04:05Z", onDeadline: Proceed}
  limits: {cpu: 500m, memory: 64Gi, pods: 1, replicas: 1}
  properties: {a: b}
status:
  conditions: [` + condition + `]
  allocatable: {cpu: "1"}
  requested: {cpu: "1"}
  assigned: {objects: 1, replicas: 1, requests: {cpu: "1"}}
  drain:
    startTime: "2026-01-02T15:04:05Z"
    total: 4
    left: 4
    moving: 1
    waiting: 1
    blocked: 1
    staying: 1
    blockers: [{object: Deployment shop/web, reason: MoveBlocked, message: m}]
    stays: [{object: DaemonSet shop/logs, reason: Required, message: m}]
  versions: {kubernetes: v1.35.0, agent: v1}
  hubUID: u
  lastHeartbeat: "2026-01-02T15:04:05.123456Z"
  room: {buckets: [{nodes: 1, cpu: 500m, memory: 1Gi, pods: 10}]}
`,
		"Assignment": `
spec:
  object: ` + reference + `
  decision:
    rollbacks: 1
    autoscaledReplicas: 1
    refusals: [{cluster: east, replicas: 1, retryTime: "2026-01-02T03:04:05.000000Z", count: 1}]
    rebalanceDigest: d
    startedIn: [east]
    source: annotation
    digest: d
    number: 1
    lastChangeTime: "2026-01-02T15:04:05.123456Z"
    requests: {cpu: "1"}
    policyUID: u
    annotatedPolicyUID: u
    annotationDigest: d
    onDelete: Delete
  targets: [{cluster: east, replicas: 1, requestedReplicas: 1, fallbackReplicas: 2, autoscaledReplicas: 1, returned: true, trafficWithdrawnTime: "2026-01-02T15:04:05.123456Z",
    state: Active, lastTransitionTime: "2026-01-02T15:04:05.123456Z"}]
  dependencies: [{group: apps, kind: Deployment, name: a}]
  volume: {claimUID: u, source: ` + volumeSource + `, from: east, to: west, state: Binding}
status:
  conditions: [` + condition + `]
  summary: s
  clusters:
  - {cluster: east, term: 1, revision: 1, applied: true, ready: true, message: m, replicas: {total: 1, ready: 1, available: 1}, associated: ` + associated + `}
  truncated: true
  observedGeneration: 1
`,
		"Work": "spec:" + workSpec + `
status:
  conditions: [` + condition + `]
  term: 1
  revision: 1
  halted: {record: r, work: w, differences: [d]}
  manifests:
  - group: apps
    kind: Deployment
    namespace: shop
    name: web
    uid: u
    generation: 1
    appliedGeneration: 1
    sourceGeneration: 1
    replicas: 1
    volumeClaims: [shop/data]
    refusedReplicas: {replicas: 1, reason: Unschedulable, message: m}
    truncated: true
    status: {replicas: 1}
    ready: true
    conditions: [` + condition + `]
    associated: ` + associated + `
    autoscaledReplicas: 1
    volume: {action: Bind, source: ` + volumeSource + `, unmovable: m, waiting: m}
  traffic: {revision: 1, endpoints: [` + endpoints + `], truncated: true, message: m}
`,
		"AppliedWork": "spec:\n  work:" + workSpec + `
status:
  conditions: [` + condition + `]
  revision: 1
  objects: [{group: apps, version: v1, resource: deployments, kind: Deployment, namespace: shop, name: web, uid: u, appliedGeneration: 1, sourceGeneration: 1, creating: true, replicas: 1}]
`,
	}
}
