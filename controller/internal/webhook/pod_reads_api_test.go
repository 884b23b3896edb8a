// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Pods are created in bursts, and each waits for its webhook. So the webhooks of Pods and of their
// templates decide from the controller's caches: a read for each Pod would add to the API server's load
// when it is highest.
func TestPodsAreAdmittedFromCaches(t *testing.T) {
	env := apitest.New(t)
	requests := newRequestLog()
	counted := *env
	counted.Config = apitest.Faulty(env.Config, requests.add)
	stop, err := admissiontest.Serve(t.Context(), &counted, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	p := preparePodNetworks(t, env)

	before, mutatedBefore := asked(t, env, "pods.danm.io")+asked(t, env, "workloads.danm.io"), asked(t, env, "mutate.pods.danm.io")
	requests.beginAdmission()
	for name, tc := range podReadCases() {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				checkAnswer(t, tc.reason, env.Client.Create(t.Context(), p.pod(tc)), tc.refused)
			}
		})
	}
	for kind := range workloads() {
		t.Run(kind, func(t *testing.T) {
			const reason = "A template is checked as its Pods will be."
			good := workload(t, kind, p.namespace, v1.InterfacesAnnotation, p.names(`[{"clusterNetwork": "%shared", "ip": "dynamic"}, {"tenantNetwork": "mine"}]`))
			checkAnswer(t, reason, env.Client.Create(t.Context(), good), nil)
			bad := workload(t, kind, p.namespace, v1.InterfacesAnnotation, p.names(`[{"clusterNetwork": "%shared", "ip": "10.9.0.1"}]`))
			bad.SetName("outside")
			checkAnswer(t, reason, env.Client.Create(t.Context(), bad), []string{"workloads.danm.io", "subnet"})
		})
	}
	live, background := requests.endAdmission()
	calls := asked(t, env, "pods.danm.io") + asked(t, env, "workloads.danm.io") - before
	if want := 4*len(podReadCases()) + 2*len(workloads()); calls < want {
		t.Errorf("the API server called the webhooks %d times, want %d: the test does not measure them", calls, want)
	}
	if got, want := asked(t, env, "mutate.pods.danm.io")-mutatedBefore, 4*mutatedCases(); got != want {
		t.Errorf("the API server called the mutating webhook %d times, want %d, for Pods with interfaces only", got, want)
	}
	for _, r := range live {
		t.Errorf("the admission of Pods made a request that no background task makes: %s", r)
	}
	// More requests mean that a handler makes a background task read for each Pod.
	if background > calls/2 {
		t.Errorf("the background tasks made %d requests during %d calls, want far fewer", background, calls)
	}
}

// podReadCase is a Pod; a "%" in its annotation is the prefix of cluster-scoped names.
type podReadCase struct {
	reason, key, value string
	hostNetwork, owned bool
	refused            []string
}

// podReadCases are Pods whose checks use all that the webhook knows.
func podReadCases() map[string]podReadCase {
	const ours = v1.InterfacesAnnotation
	return map[string]podReadCase{
		"Cluster":     {reason: "The network is in the index.", key: ours, value: `[{"clusterNetwork": "%shared", "ip": "dynamic"}]`},
		"Tenant":      {reason: "The TenantConfig has assigned the network, and is not needed again.", key: ours, value: `[{"tenantNetwork": "mine", "ip": "dynamic"}]`},
		"DanmNet":     {reason: "The network is in the index.", key: ours, value: `[{"network": "old", "ip": "dynamic"}]`},
		"Several":     {reason: "Each interface looks its network up.", key: ours, value: `[{"clusterNetwork": "%shared", "ip": "dynamic"}, {"tenantNetwork": "mine"}, {"network": "old", "ip": "none"}]`},
		"OldKey":      {reason: "DANM's key has the same meaning.", key: "danm.k8s.io/interfaces", value: `[{"network": "old", "ip": "dynamic"}]`},
		"Allowed":     {reason: "AllowedTenants names the namespace, and its labels do not matter.", key: ours, value: `[{"clusterNetwork": "%ours", "ip": "dynamic"}]`},
		"NotAllowed":  {reason: "AllowedTenants names another namespace.", key: ours, value: `[{"clusterNetwork": "%theirs"}]`, refused: []string{"AllowedTenants"}},
		"Static":      {reason: "Whether a static address is free is the node's to check.", key: ours, value: `[{"clusterNetwork": "%shared", "ip": "10.7.0.9"}]`},
		"Outside":     {reason: "The subnet is in the index.", key: ours, value: `[{"clusterNetwork": "%shared", "ip": "10.9.0.1"}]`, refused: []string{"must be in the network's subnet"}},
		"NodeAddress": {reason: "The Nodes' addresses are watched.", key: ours, value: `[{"clusterNetwork": "%shared", "ip": "` + nodeAddress + `"}]`, refused: []string{"must not be an address of a node"}},
		"Missing":     {reason: "A network that the index lacks is not looked for at the API server.", key: ours, value: `[{"clusterNetwork": "%missing"}]`},
		"OtherKind":   {reason: "The suggestion comes from the index.", key: ours, value: `[{"tenantNetwork": "%shared"}]`},
		"Syntax":      {reason: "The annotation is no JSON.", key: ours, value: `[{"clusterNetwork"`, refused: []string{"pods.danm.io"}},
		"Empty":       {reason: "The Pod requests nothing.", key: ours, value: `[]`},
		"Device":      {reason: "The pool is in the index.", key: ours, value: `[{"clusterNetwork": "%vf"}, {"clusterNetwork": "%vf"}]`},
		"NIC":         {reason: "The labels of Nodes are watched.", key: ours, value: `[{"clusterNetwork": "%some"}]`},
		"UnknownKey":  {reason: "The webhook warns.", key: "danm.io/interface", value: `[]`},
		"Multus":      {reason: "The webhook warns, and reads no NetworkAttachmentDefinition.", key: "k8s.v1.cni.cncf.io/networks", value: `any`},
		"HostNetwork": {reason: "The webhook warns.", key: ours, value: `[{"clusterNetwork": "%shared"}]`, hostNetwork: true},
		"Event":       {reason: "The Event about a mistake is a write, and its owner is not read.", key: "danm.io/interface", value: `[]`, owned: true},
	}
}

// mutatedCases is the number of the cases that the mutating webhook is called for.
func mutatedCases() int {
	count := 0
	for _, tc := range podReadCases() {
		if (tc.key == v1.InterfacesAnnotation || tc.key == v1.LegacyInterfacesAnnotation) && !tc.hostNetwork {
			count++
		}
	}
	return count
}

// nodeAddress is an address of a Node, in the subnet of a network.
const nodeAddress = "10.7.0.77"

// podNetworks names the objects that the Pods refer to.
type podNetworks struct{ namespace, prefix string }

// preparePodNetworks creates the networks, a TenantConfig and a Node, and waits until the webhook knows
// them.
func preparePodNetworks(t *testing.T, env *apitest.Env) podNetworks {
	t.Helper()
	p := podNetworks{namespace: env.Namespace(t), prefix: apitest.Name("n") + "-"}
	offer(t, env, p.namespace, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	clusterNetwork := func(name, device, more string) client.Object {
		return object(t, v1.KindClusterNetwork, "", p.prefix+name, fmt.Sprintf(`{spec: {NetworkID: %s, %s Options: {host_device: %s, cidr: 10.7.0.0/24}}}`, name, more, device))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.prefix + "node"}}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.prefix + "other", Labels: map[string]string{v1.NICLabelPrefix + "ens9": ""}}}
	third := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.prefix + "third", Labels: map[string]string{v1.NICLabelPrefix + "ens4": ""}}}
	for _, o := range []client.Object{
		node, other, third,
		clusterNetwork("some", "ens9", ""),
		object(t, v1.KindClusterNetwork, "", p.prefix+"vf", `{spec: {NetworkID: vf, NetworkType: sriov, Options: {device_pool: a.b/c}}}`),
		clusterNetwork("shared", "ens4", ""),
		clusterNetwork("ours", "ens5", "AllowedTenants: ["+p.namespace+"],"),
		clusterNetwork("theirs", "ens6", "AllowedTenants: [another],"),
		tenantNetwork(t, p.namespace, "mine", `{Options: {cidr: 10.8.0.0/24}}`),
		object(t, v1.KindDanmNet, p.namespace, "old", `{spec: {NetworkID: old, Options: {host_device: ens7, cidr: 10.7.0.0/24}}}`),
	} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}}
	if err := env.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the webhook knows the Node's address and the labels", func() bool {
		onNIC := p.pod(podReadCases()["NIC"])
		return env.Client.Create(t.Context(), p.pod(podReadCases()["NodeAddress"]), client.DryRunAll) != nil &&
			env.Client.Create(t.Context(), onNIC, client.DryRunAll) == nil && onNIC.Spec.Affinity != nil
	})
	return p
}

// names replaces the "%" in an annotation.
func (p podNetworks) names(annotation string) string {
	return strings.ReplaceAll(annotation, "%", p.prefix)
}

// pod returns the Pod of a case.
func (p podNetworks) pod(tc podReadCase) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "p-", Annotations: map[string]string{tc.key: p.names(tc.value)}},
		Spec:       corev1.PodSpec{HostNetwork: tc.hostNetwork, Containers: []corev1.Container{{Name: "a", Image: "b"}}},
	}
	if tc.owned {
		isController := true
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: "web", UID: "uid", Controller: &isController,
		}}
	}
	return pod
}

// requestLog has the requests that the controller makes of the API server. It knows who makes each by
// the stack of the goroutine: a client sends a request in the goroutine of its caller.
type requestLog struct {
	mu sync.Mutex
	// watched are the paths that informers have read before admission began.
	watched map[string]bool
	// admitting is true while Pods are admitted. Live and background count the requests meanwhile.
	admitting  bool
	live       []string
	background int
}

func newRequestLog() *requestLog { return &requestLog{watched: map[string]bool{}} }

// add adds a request, and lets it pass.
func (l *requestLog) add(r *http.Request) apitest.Fault {
	caller := string(debug.Stack())
	l.mu.Lock()
	defer l.mu.Unlock()
	isInformer := strings.Contains(caller, "cache.(*Reflector).")
	switch {
	case !l.admitting:
		l.watched[r.URL.Path] = l.watched[r.URL.Path] || isInformer
	case isInformer && l.watched[r.URL.Path], isBackground(r, caller):
		l.background++
	default:
		l.live = append(l.live, fmt.Sprintf("%s %s\n%s", r.Method, r.URL, caller))
	}
	return apitest.Pass
}

// isBackground reports whether a task that runs without any Pod makes the request, or the writer of
// Events.
func isBackground(r *http.Request, caller string) bool {
	return r.Method != http.MethodGet && strings.Contains(caller, "client-go/tools/record.") ||
		slices.ContainsFunc([]string{
			"servingcert.(*Rotator).Start", "webhook.(*networkInformer).Start", "webhook.(*reservationGC).Start", "webhook.(*conflictReporter).Start",
		}, func(task string) bool { return strings.Contains(caller, task) })
}

// beginAdmission starts to attribute requests.
func (l *requestLog) beginAdmission() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitting = true
}

// endAdmission returns the requests of no background task, and the number of the others.
func (l *requestLog) endAdmission() (live []string, background int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitting = false
	return l.live, l.background
}
