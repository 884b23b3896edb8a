// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Templates that cannot work, and what the error must say.
func TestRejected(t *testing.T) {
	t.Parallel()
	node := func(patch string) string { return "parts: {node: {template: " + patch + "}}" }
	controller := func(patch string) string { return "parts: {controller: {template: " + patch + "}}" }
	const nodeSpec = "spec.parts.node.template.spec."
	cases := map[string]struct{ reason, spec, want string }{
		"HostNetwork":    {"the daemon makes links of the node", node("{spec: {hostNetwork: false}}"), nodeSpec + "hostNetwork: must be true"},
		"HostPID":        {"delegates name namespaces by process", node("{spec: {hostPID: false}}"), nodeSpec + "hostPID: must be true"},
		"Replaced":       {"a directive removes what the default has", node("{spec: {$patch: replace, containers: [{name: patchbayd, image: x}]}}"), nodeSpec + "hostNetwork: must be true"},
		"NoGrace":        {"the API server sets 30 seconds", node("{spec: {terminationGracePeriodSeconds: null}}"), nodeSpec + "terminationGracePeriodSeconds: must be at least 60, because the daemon cleans up the node when it is uninstalled: got 30"},
		"Renamed":        {"the program is found by its container", node("{spec: {containers: [{name: patchbayd, $patch: delete}, {name: daemon, image: x}]}}"), "must have the container patchbayd"},
		"Selector":       {"the workload would not find its Pods", node("{metadata: {labels: {app.kubernetes.io/name: mine}}}"), `must be patchbayd, because the workload selects its Pods by it: got "mine"`},
		"Capability":     {"delegates and links need them", node("{spec: {containers: [{name: patchbayd, securityContext: {capabilities: {add: [NET_ADMIN]}}}]}}"), "securityContext.capabilities.add: must have SYS_ADMIN"},
		"NotRoot":        {"folders belong to root", node("{spec: {securityContext: {runAsNonRoot: true}}}"), "runAsNonRoot: must not be true"},
		"User":           {"folders belong to root", node("{spec: {securityContext: {runAsUser: 65532}}}"), "runAsUser: must be 0 or not set"},
		"NoMount":        {"the plugin is installed there", node("{spec: {containers: [{name: patchbayd, volumeMounts: [{mountPath: /opt/cni/bin, $patch: delete}]}]}}"), "must have a mount at /opt/cni/bin, by default of the volume cni-bin"},
		"OtherMount":     {"the flag says where the daemon looks", node("{spec: {containers: [{name: patchbayd, volumeMounts: [{mountPath: /etc/cni/net.d, $patch: delete}, {mountPath: /cni, name: cni-conf}]}]}}"), "must have a mount at /etc/cni/net.d"},
		"NoVolume":       {"a folder of the node", node("{spec: {volumes: [{name: state, $patch: delete}]}}"), nodeSpec + "volumes[state]: must be a hostPath"},
		"EmptyDir":       {"the journal would be lost with the Pod", node("{spec: {volumes: [{name: state, $retainKeys: [name, emptyDir], emptyDir: {}}]}}"), nodeSpec + "volumes[state]: must be a hostPath"},
		"OtherFolder":    {"the plugin looks for the socket in one place", node("{spec: {volumes: [{name: run, hostPath: {path: /run/other}}]}}"), "volumes[run].hostPath.path: must be /run/patchbay, where the plugin and earlier daemons look: got /run/other"},
		"Host":           {"delegates run in the node's root", node("{spec: {volumes: [{name: host, hostPath: {path: /srv}}]}}"), "volumes[host].hostPath.path: must be /"},
		"ReadOnly":       {"the plugin is written", node("{spec: {containers: [{name: patchbayd, volumeMounts: [{mountPath: /opt/cni/bin, readOnly: true}]}]}}"), "volumeMounts[/opt/cni/bin]: must not be read-only"},
		"SubPath":        {"another folder", node("{spec: {containers: [{name: patchbayd, volumeMounts: [{mountPath: /run/patchbay, subPath: a}]}]}}"), "must have no subPath"},
		"Propagation":    {"later namespaces would be missing", node("{spec: {containers: [{name: patchbayd, volumeMounts: [{mountPath: /run/netns, mountPropagation: None}]}]}}"), "mountPropagation: must be HostToContainer"},
		"Args":           {"the list takes the place of the default", node("{spec: {containers: [{name: patchbayd, args: [--warm-pool-limit=0]}]}}"), "must have the flag --host-root"},
		"Env":            {"a flag has the variable", node("{spec: {containers: [{name: patchbayd, env: [{name: NODE_NAME, $patch: delete}]}]}}"), "env[NODE_NAME]: must have valueFrom.fieldRef.fieldPath spec.nodeName and no value"},
		"Port":           {"kubelet would probe another port", node(`{spec: {containers: [{name: patchbayd, args: ["--node-name=$(NODE_NAME)", --host-root=/host, "--health-address=[$(HOST_IP)]:9999"]}]}}`), `ports[http]: must be the port of the flag --health-address: got 9640`},
		"PortTaken":      {"all containers share the node's ports", node("{spec: {containers: [{name: x, image: x, ports: [{containerPort: 9640}]}]}}"), "must not have 9640/TCP on the node's network, which container"},
		"SidecarPort":    {"sidecars run beside the program", node("{spec: {initContainers: [{name: x, image: x, restartPolicy: Always, ports: [{containerPort: 9644}]}]}}"), "must not have 9644/TCP on the node's network"},
		"Unknown":        {"a field with a mistake must not be ignored", node("{spec: {hostNetwrok: true}}"), `unknown field "spec.hostNetwrok"`},
		"WrongType":      {"the API server checks the same, unless the definition is older", node("{spec: {hostNetwork: 7}}"), "must be a patch of a PodTemplateSpec"},
		"Directive":      {"an unknown directive", node("{spec: {$patch: remove}}"), "must be a patch of a PodTemplateSpec"},
		"NoKey":          {"a list merges by name", node("{spec: {containers: [{image: x}]}}"), "must be a patch of a PodTemplateSpec"},
		"RestartPolicy":  {"a daemon runs always", node("{spec: {restartPolicy: Never}}"), "restartPolicy: must be Always"},
		"NodeName":       {"Kubernetes would delete the daemons of all other nodes at once", node("{spec: {nodeName: east-7}}"), nodeSpec + "nodeName: must be left out, because the daemon runs on many nodes: got east-7"},
		"Windows":        {"Kubernetes would delete all daemons at once", node("{spec: {nodeSelector: {kubernetes.io/os: windows}}}"), nodeSpec + "nodeSelector[kubernetes.io/os]: must be linux: got windows"},
		"WindowsPod":     {"no node would run it", node("{spec: {os: {name: windows}}}"), nodeSpec + "os.name: must be linux: got windows"},
		"NoToken":        {"the program talks to the API server", controller("{spec: {automountServiceAccountToken: false}}"), "automountServiceAccountToken: must not be false without a volume at /var/run/secrets"},
		"NoContainer":    {"a controller without its program", controller("{spec: {containers: [{$patch: replace}, {name: x, image: x}]}}"), "must have the container patchbay-controller"},
		"NodeAddress":    {"the node's address is not in the Pod's network", controller("{spec: {hostNetwork: false}}"), "flag --health-address must not be an address of the node without hostNetwork"},
		"PartsPort":      {"controller and daemon share nodes", controller("{spec: {containers: [{name: x, image: x, ports: [{containerPort: 9644}]}]}}"), "must not have 9644/TCP on the node's network, which container patchbayd of the node daemon uses"},
		"Webhook":        {"networks would be rejected", controller(`{spec: {containers: [{name: patchbay-controller, args: ["--health-address=[$(HOST_IP)]:9641", --webhook-address=]}]}}`), "flag --webhook-address must not be empty"},
		"Surge":          {"two Pods have no room on one node", "parts: {controller: {updateStrategy: {maxSurge: 1}}}", "spec.parts.controller.updateStrategy.maxSurge: must be 0, because the Pods use ports of the node"},
		"NoStep":         {"no Pod could be replaced", "parts: {controller: {updateStrategy: {maxUnavailable: 0}}}", "updateStrategy.maxUnavailable: must not be 0"},
		"NoPercent":      {"0% is 0", "parts: {controller: {updateStrategy: {maxUnavailable: 0%}}}", "updateStrategy.maxUnavailable: must not be 0"},
		"Recreate":       {"Kubernetes rejects both", "parts: {controller: {updateStrategy: {type: Recreate, maxUnavailable: 1}}}", "must have no maxSurge and no maxUnavailable with the type Recreate"},
		"NoCluster":      {"the hub knows the cluster by name", "parts: {placementAgent: {enabled: true}}", "spec.parts.placementAgent.cluster: must be the name of this cluster"},
		"NoDelegate":     {"Pods cannot get a file and not start", "{defaultDelegate: 10-calico.conflist, features: {nodeConfiguration: false}}", "spec.defaultDelegate: must be empty if features.nodeConfiguration is false"},
		"ClusterInEnv":   {"the field would do nothing", "parts: {placementAgent: {enabled: true, cluster: east, template: {spec: {containers: [{name: patchbay-agent, env: [{name: CLUSTER, value: west}]}]}}}}", "env[CLUSTER]: must be left out"},
		"NoHub":          {"the agent needs the hub's address", "parts: {placementAgent: {enabled: true, cluster: east, template: {spec: {containers: [{name: patchbay-agent, volumeMounts: [{mountPath: /etc/patchbay/hub, $patch: delete}]}]}}}}", "must have a mount at /etc/patchbay/hub"},
		"SeveralReasons": {"all mistakes are reported together", node("{spec: {hostPID: false, hostNetwork: false}}"), nodeSpec + "hostPID: must be true"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(readInstallation(t, tc.spec))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// Templates that look unusual, and work.
func TestAccepted(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, spec string }{
		"K3s": {"folders of another runtime, with the flags that say so", `
parts:
  node:
    template:
      spec:
        volumes:
          - {name: cni-bin, hostPath: {path: /var/lib/rancher/k3s/data/cni}}
          - {name: cni-conf, hostPath: {path: /var/lib/rancher/k3s/agent/etc/cni/net.d}}
        containers:
          - name: patchbayd
            args:
              - --node-name=$(NODE_NAME)
              - --host-root=/host
              - --health-address=[$(HOST_IP)]:9640
              - --cni-bin-dir=/var/lib/rancher/k3s/data/cni
              - --cni-conf-dir=/var/lib/rancher/k3s/agent/etc/cni/net.d
            volumeMounts:
              - {mountPath: /opt/cni/bin, $patch: delete}
              - {mountPath: /etc/cni/net.d, $patch: delete}
              - {mountPath: /var/lib/rancher/k3s/data/cni, name: cni-bin}
              - {mountPath: /var/lib/rancher/k3s/agent/etc/cni/net.d, name: cni-conf}
`},
		"Privileged": {"a privileged container has all capabilities", "parts: {node: {template: {spec: {containers: [{name: patchbayd, securityContext: {privileged: true, allowPrivilegeEscalation: true, capabilities: {$patch: replace}}}]}}}}"},
		"Command":    {"a wrapper adds what it likes", `parts: {node: {template: {spec: {containers: [{name: patchbayd, command: [/wrap], args: []}]}}}}`},
		"PodNetwork": {"the controller may run on a Pod network", `parts: {controller: {updateStrategy: {maxSurge: 1}, template: {spec: {hostNetwork: false, containers: [{name: patchbay-controller, args: ["--health-address=:9641", "--metrics-address=:9645", "--webhook-address=:9642"]}]}}}}`},
		"Grace":      {"a longer time to stop, and the controller needs none", "parts: {node: {template: {spec: {terminationGracePeriodSeconds: 61}}}, controller: {template: {spec: {terminationGracePeriodSeconds: 1}}}}"},
		"Null":       {"an empty template is none", "parts: {node: {template: null}}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := New(readInstallation(t, tc.spec)); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// The default template has the shortest grace period that is accepted. TestStopFitsGracePeriod of the daemon compares it
// with what the daemon may take.
func TestGracePeriodOfTheDefault(t *testing.T) {
	t.Parallel()
	got, found, err := unstructured.NestedInt64(renderedTemplate(t, "{}"), "spec", "terminationGracePeriodSeconds")
	if err != nil || !found || got != minGracePeriod {
		t.Errorf("terminationGracePeriodSeconds: got %d, %v, want %d as templates must have", got, err, minGracePeriod)
	}
}
