// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Cluster is what `kubectl patchbay preflight` reads from the API server.
type Cluster struct {
	// Version is that of the API server, such as v1.35.2.
	Version string
	// MissingResources are those of NeededResources that the API server does not serve.
	MissingResources []string
	// Forbidden are what the user must be allowed to do to install Patchbay, and is not.
	Forbidden []string
	// Definitions are the CustomResourceDefinitions of the group danm.io, with those in deletion as true.
	Definitions map[string]bool
	// CiliumExclusive means that Cilium removes the configurations of other CNI plugins.
	CiliumExclusive bool
	// Webhooks are kinds of configurations with the name patchbay whose Service does not exist.
	Webhooks []string
	// OtherPreflights are namespaces of earlier preflights.
	OtherPreflights []string
	// Nodes are all nodes that are checked, with AllNodes in the cluster.
	Nodes    []Node
	AllNodes int
	// Errors are about what could not be read.
	Errors []string
}

// Node is what a Node object has about a node.
type Node struct {
	Name, OS, Architecture   string
	Kernel, Kubelet, Runtime string
	// Ready is the status of the condition Ready: True, False or Unknown.
	Ready string
}

// NeededResources are the resources of the API server that Patchbay uses, with their group and version.
func NeededResources() map[string][]string {
	return map[string][]string{
		"admissionregistration.k8s.io/v1": {"mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations"},
		"apiextensions.k8s.io/v1":         {"customresourcedefinitions"},
		"apps/v1":                         {"daemonsets", "deployments"},
		"coordination.k8s.io/v1":          {"leases"},
		"discovery.k8s.io/v1":             {"endpointslices"},
		"policy/v1":                       {"poddisruptionbudgets"},
		"rbac.authorization.k8s.io/v1":    {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
	}
}

// oldestKubernetes is the oldest supported version.
func oldestKubernetes() [2]int { return [2]int{1, 31} }

// testedKubernetes is the version with which the tests run.
func testedKubernetes() [2]int { return [2]int{1, 35} }

// ciliumRemedy is what to do when Cilium removes the configurations of others.
const ciliumRemedy = "Set `cni.exclusive: false` in the values of Cilium's Helm chart (cni-exclusive in the ConfigMap cilium-config), and restart its agents before you install Patchbay."

// CheckCluster checks what was read from the API server, and the Node objects.
func CheckCluster(c *Cluster) []Result {
	r := &results{}
	r.checkVersion("Kubernetes", c.Version)
	r.checkAPI(c)
	r.checkRights(c)
	r.checkLeftovers(c)
	if c.CiliumExclusive {
		r.fail("Cilium", "cni-exclusive is true in the ConfigMap kube-system/cilium-config: Cilium renames "+OwnConfiguration, ciliumRemedy)
	}
	if c.AllNodes == 1 {
		r.warn("nodes", "the cluster has one node, and the controller's second replica needs another one", "Set replicas of the Deployment patchbay-controller to 1.")
	}
	for _, text := range c.Errors {
		r.warn("API server", text, "Check by hand what could not be read.")
	}
	for _, n := range c.Nodes {
		r.all = append(r.all, checkNode(n)...)
	}
	return r.all
}

func (r *results) checkVersion(check, version string) {
	v, ok := parseVersion(version)
	switch {
	case !ok:
		r.warn(check, fmt.Sprintf("version %q is unknown", version), "Check that it is 1.31 or newer.")
	case older(v, oldestKubernetes()):
		r.fail(check, version+": must be 1.31 or newer", "Upgrade Kubernetes.")
	case older(testedKubernetes(), v):
		r.ok(check, version+", newer than the tested 1.35")
	default:
		r.ok(check, version)
	}
}

func (r *results) checkAPI(c *Cluster) {
	const check = "API"
	if len(c.MissingResources) > 0 {
		r.fail(check, "the API server does not serve "+strings.Join(c.MissingResources, ", "),
			"Remove what turns them off from the API server's flags --runtime-config and --feature-gates.")
		return
	}
	r.ok(check, "all kinds that Patchbay uses are served, with ValidatingAdmissionPolicy")
}

func (r *results) checkRights(c *Cluster) {
	const check = "your rights"
	if len(c.Forbidden) > 0 {
		r.fail(check, "you may not "+strings.Join(c.Forbidden, ", "), "Install Patchbay as a user with the ClusterRole cluster-admin.")
		return
	}
	r.ok(check, "you may create all objects of an installation")
}

// checkLeftovers checks for objects of an earlier installation, of DANM, and of earlier preflights.
func (r *results) checkLeftovers(c *Cluster) {
	const check = "earlier installations"
	before := len(r.all)
	var there []string
	for _, name := range slices.Sorted(maps.Keys(c.Definitions)) {
		if c.Definitions[name] {
			r.fail(check, "the CustomResourceDefinition "+name+" is being deleted", "Complete the deletion as in docs/install.md#uninstall.")
			continue
		}
		there = append(there, name)
	}
	if len(there) > 0 {
		r.warn(check, "the cluster has the CustomResourceDefinitions "+strings.Join(there, ", "),
			"An installation replaces them: go on if they are Patchbay's. Read docs/api.md first if they are DANM's.")
	}
	if len(c.Webhooks) > 0 {
		r.fail(check, fmt.Sprintf("the Service of %s patchbay does not exist: no network can be created", strings.Join(c.Webhooks, " and ")),
			fmt.Sprintf("Run `kubectl delete %s patchbay`.", strings.Join(c.Webhooks, ",")))
	}
	for _, namespace := range c.OtherPreflights {
		r.warn(check, fmt.Sprintf("namespace %s is of another preflight, which runs or was killed", namespace),
			fmt.Sprintf("Run `kubectl delete namespace %s` unless it runs.", namespace))
	}
	if len(r.all) == before {
		r.ok(check, "none")
	}
}

// checkNode checks a Node object.
func checkNode(n Node) []Result {
	r := &results{node: n.Name}
	if n.OS != "linux" {
		r.warn("operating system", n.OS+": Patchbay runs on Linux nodes only", "Keep Pods with Patchbay's networks off this node.")
		return r.all
	}
	if n.Architecture != "amd64" && n.Architecture != "arm64" {
		r.fail("architecture", n.Architecture+": must be amd64 or arm64", "Build the images for this architecture.")
	}
	if n.Ready == "Unknown" {
		r.fail("kubelet", "kubelet does not report", "Start the node, or leave it out with --nodes.")
	}
	r.checkVersion("kubelet", n.Kubelet)
	r.checkKernel(n)
	r.checkRuntime(n)
	return r.all
}

func (r *results) checkKernel(n Node) {
	const check = "kernel"
	v, ok := parseVersion(n.Kernel)
	switch {
	case !ok:
		r.warn(check, fmt.Sprintf("release %q is unknown", n.Kernel), "Check that it is Linux 5.10 or newer.")
	case older(v, oldestKernel()):
		r.fail(check, n.Kernel+": must be 5.10 or newer", "Upgrade the node's kernel.")
	default:
		r.ok(check, n.Kernel)
	}
}

func (r *results) checkRuntime(n Node) {
	const check = "container runtime"
	name, version, _ := strings.Cut(n.Runtime, "://")
	v, ok := parseVersion(version)
	switch {
	case name == "containerd" && ok && older(v, [2]int{1, 6}):
		r.warn(check, n.Runtime+": older than 1.6, with which the tests run", "Upgrade containerd.")
	case name == "containerd" || name == "cri-o":
		r.ok(check, n.Runtime)
	default:
		r.warn(check, cmp.Or(n.Runtime, "unknown")+": not tested", "Use containerd or CRI-O, or try Patchbay on one node first.")
	}
}

// CheckSourceGuard checks that a node's kernel is new enough for source_guard.
func CheckSourceGuard(n Node) []Result {
	r := &results{node: n.Name}
	if v, ok := parseVersion(n.Kernel); ok && older(v, sourceGuardKernel()) {
		r.fail("kernel", n.Kernel+": source-guard needs 5.16 or newer", "Upgrade the node's kernel, or leave source-guard out of --features.")
	}
	return r.all
}

// CompareNICs checks that NICs with the same name have the same MTU on all nodes.
func CompareNICs(nodes map[string]*Facts) []Result {
	r := &results{}
	mtus := map[string]map[int][]string{}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		for _, nic := range nodes[node].NICs {
			if mtus[nic.Name] == nil {
				mtus[nic.Name] = map[int][]string{}
			}
			mtus[nic.Name][nic.MTU] = append(mtus[nic.Name][nic.MTU], node)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mtus)) {
		if len(mtus[name]) < 2 {
			continue
		}
		var parts []string
		for _, mtu := range slices.Sorted(maps.Keys(mtus[name])) {
			parts = append(parts, fmt.Sprintf("%d on %s", mtu, JoinNodes(mtus[name][mtu])))
		}
		r.warn("MTU", fmt.Sprintf("NIC %s has %s", name, strings.Join(parts, ", ")),
			"Give the NIC the same MTU on all nodes that share a network on it. A VXLAN's Pods have 50 bytes less over IPv4 and 70 less over IPv6.")
	}
	return r.all
}

// JoinNodes lists the names of nodes, of many only the first ones.
func JoinNodes(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
}
