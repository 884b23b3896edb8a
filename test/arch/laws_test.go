// SPDX-License-Identifier: Apache-2.0

package arch

import "strings"

// law forbids packages under one folder to import some others.
type law struct {
	// packages is the folder that the law is for; "" is the whole module.
	packages string
	// except are folders below who that the law is not for.
	except []string
	// forbidden are import paths (prefixes); those of ours are relative.
	forbidden []string
	// allowed are exceptions from forbidden.
	allowed []string
	// transitive also looks at what the imports import.
	transitive bool
	// reason is why.
	reason string
}

// external libraries by the name that the laws use for them.
var (
	clients = []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}
	kernels = []string{
		"github.com/vishvananda/netlink", "github.com/vishvananda/netns",
		"github.com/google/nftables", "github.com/mdlayher/netlink",
	}
	loggers = []string{"go.uber.org/zap", "github.com/go-logr", "log", "k8s.io/klog"}
)

// laws in the order of ARCHITECTURE.md. What a package must not import itself from outside of the
// module is in .golangci.yml (depguard); here are the laws between our packages, and those about what
// a package imports through others.
func laws() []law {
	pure := concat(clients, kernels, loggers, []string{"net/http", "os/exec"})
	return []law{
		{
			packages: "api", forbidden: []string{module},
			allowed: []string{module + "/api"},
			reason:  "the API types are leaves: every program and every client imports them",
		},
		{
			packages: "cni/wire", forbidden: []string{module},
			reason: "the wire format is a leaf, linked into a plugin of a few MB",
		},
		{
			packages: "internal/version", forbidden: []string{module},
			reason: "the version is a leaf that every program prints",
		},
		{
			packages: "internal/logging", forbidden: []string{module},
			reason: "how programs log is a leaf",
		},
		{
			packages: "internal/app", forbidden: []string{module},
			reason: "how programs start and end is a leaf",
		},
		{
			packages: "internal/manager", forbidden: []string{module}, allowed: []string{module + "/internal/app"},
			reason: "how programs of controllers start and end is a leaf",
		},
		{
			packages: "internal/text", forbidden: append([]string{module}, pure...),
			transitive: true,
			reason:     "how a text is shortened is a leaf: the allocator imports it",
		},
		{
			packages: "internal/relist", forbidden: []string{module},
			reason: "how programs outlive a restore of etcd is a leaf",
		},
		{
			packages: "internal/securemetrics", forbidden: []string{module},
			reason: "how programs are scraped is a leaf",
		},
		{
			packages: "ipam", except: []string{"ipam/allocator", "ipam/gc", "ipam/status", "ipam/internal"},
			forbidden: append([]string{module}, pure...), allowed: []string{module + "/ipam", module + "/internal/text"},
			transitive: true,
			reason:     "the allocator is arithmetic: standard library only, so that it can be proved and fuzzed alone; internal/text is as pure",
		},
		{
			packages: "ipam/allocator", forbidden: []string{module},
			allowed: []string{module + "/ipam", module + "/internal/network", module + "/internal/groupcommit", module + "/api"},
			reason:  "claims know a narrow store, never the API server's client",
		},
		{
			packages: "ipam/gc", forbidden: []string{module},
			allowed: []string{module + "/ipam/status", module + "/internal/network", module + "/internal/groupcommit", module + "/api"},
			reason:  "the garbage collector knows a narrow store, and nothing of a node's allocator",
		},
		{
			packages: "ipam/status", forbidden: []string{module},
			allowed: []string{module + "/ipam", module + "/internal/network", module + "/api"},
			reason:  "what a network's status says is a function of the object: nodes and controller read it alike",
		},
		{
			packages: "internal/groupcommit", forbidden: []string{module},
			reason: "group commit is a leaf: it knows no addresses and no reservations",
		},
		{
			packages: "internal/network", forbidden: []string{module},
			allowed: []string{module + "/api", module + "/internal/network", module + "/internal/text", module + "/ipam"},
			reason:  "admission, daemon and netwatcher share one pure function from objects to the model",
		},
		{
			packages: "internal/crdcompiler", forbidden: concat([]string{module}, clients),
			allowed: []string{module + "/internal/text"},
			reason:  "templates are compiled without a cluster, in any repository: only files and embedded definitions count",
		},
		{
			packages: "internal/preflight", forbidden: append([]string{module}, pure...),
			transitive: true,
			reason:     "whether Patchbay can be installed is computed from facts: node and API server are read elsewhere",
		},
		{
			packages: "cni", forbidden: concat(clients, kernels, []string{"k8s.io/apimachinery", "net/http"}),
			transitive: true,
			reason:     "the plugin is executed for every Pod: it links no client, no netlink, and starts in 5 ms",
		},
		{
			packages: "cmd/patchbay", forbidden: concat(clients, kernels, []string{"k8s.io/apimachinery", "net/http"}),
			transitive: true,
			reason:     "the plugin holds no credentials and stays below 6 MB",
		},
		{
			packages: "daemon/internal/firewall", forbidden: []string{module},
			allowed: []string{module + "/daemon/internal/firewall", module + "/netwatcher"},
			reason:  "the packet filter gets what may pass as values, and reads neither links nor the API server",
		},
		{
			packages: "internal/kube", forbidden: []string{module},
			allowed: []string{module + "/api", module + "/internal/network", module + "/ipam/status"},
			reason:  "every program stands on it, so it stands on models and the client libraries only",
		},
		{
			packages: "controller", forbidden: []string{module + "/daemon", module + "/cni", module + "/netwatcher"},
			reason: "the controller runs on no node: it shares objects with the daemon, and no code for kernel or sockets",
		},
		{
			packages: "daemon/internal/acd", forbidden: []string{module}, allowed: []string{module + "/daemon/internal/acd"},
			reason: "frames of others are parsed without a socket, so that a fuzzer can",
		},
		{
			packages: "internal/tenant", forbidden: []string{module},
			allowed: []string{module + "/api", module + "/internal/network", module + "/internal/tenant", module + "/internal/text"},
			reason:  "who gets which device and ID is arithmetic: admission, sweeper and tests run the same",
		},
		{
			packages: "controller/internal/reserve", forbidden: []string{module},
			allowed: []string{module + "/api", module + "/internal/network", module + "/internal/tenant", module + "/internal/groupcommit"},
			reason:  "reservations know a narrow store, never the API server's client",
		},
		{
			packages: "controller/internal/webhook", forbidden: []string{
				module + "/daemon", module + "/netwatcher", module + "/ipam",
				module + "/controller/internal/addresses", module + "/controller/internal/networks", module + "/controller/internal/services",
			},
			reason: "admission is thin over network and tenant, and shares objects with the daemon, and no code for kernel or sockets",
		},
		{
			packages: "", except: []string{"daemon", "controller", "operator", "placement/hub", "placement/agent", "test"}, forbidden: []string{module + "/internal/logging"},
			reason: "a program sets its logs up once; everybody else finds the logger in the context",
		},
		{
			packages: "", except: []string{"internal/kube", "daemon", "controller", "internal/kubectl", "test"},
			forbidden: []string{module + "/internal/kube"},
			reason:    "only programs and adapters talk to the API server: pure packages and use cases know interfaces",
		},
		{
			packages: "daemon/internal/attach", forbidden: []string{module},
			allowed: []string{module + "/daemon/internal/attach", module + "/internal/network", module + "/internal/text", module + "/api"},
			reason:  "attaching knows interfaces only; the daemon passes in their implementations",
		},
		{
			packages: "daemon/internal/kernel", forbidden: append(clusterPackages(), module+"/daemon/internal/server", module+"/daemon/internal/journal"),
			reason: "kernel, API-server and socket code never import each other",
		},
		{
			packages: "daemon/internal/server", forbidden: append(clusterPackages(), module+"/daemon/internal/kernel"),
			reason: "kernel, API-server and socket code never import each other",
		},
		{
			packages: "daemon/internal/kubeclient", forbidden: []string{module},
			allowed: []string{module + "/daemon/internal/attach", module + "/internal/app", module + "/internal/kube", module + "/api"},
			reason:  "all packages that talk to the API server import the connection, so it imports none of them",
		},
		{
			packages: "daemon/internal/nodestate", forbidden: []string{module + "/daemon"},
			allowed: []string{module + "/daemon/internal/kubeclient", module + "/daemon/internal/attach"},
			reason:  "kernel, API-server and socket code never import each other, and the Node stands alone",
		},
		{
			packages: "daemon/internal/networkcache", forbidden: []string{module + "/daemon"},
			allowed: []string{module + "/daemon/internal/kubeclient", module + "/daemon/internal/attach"},
			reason:  "kernel, API-server and socket code never import each other, and networks know neither Pods nor DanmEps",
		},
		{
			packages: "daemon/internal/danmep", forbidden: []string{module + "/daemon"},
			allowed: []string{module + "/daemon/internal/kubeclient", module + "/daemon/internal/nodestate", module + "/daemon/internal/attach"},
			reason:  "kernel, API-server and socket code never import each other, and a DanmEp needs only the record of its sandbox",
		},
		{
			packages: "daemon/internal/pods", forbidden: []string{module + "/daemon"},
			allowed: []string{module + "/daemon/internal/kubeclient", module + "/daemon/internal/attach"},
			reason:  "kernel, API-server and socket code never import each other, and Pods know neither DanmEps nor the cache of networks",
		},
		{
			packages: "daemon/internal/addresses", forbidden: []string{module + "/daemon"},
			allowed: []string{module + "/daemon/internal/attach"},
			reason:  "access to the allocator needs no client of the API server",
		},
		{
			packages: "daemon/internal/podresources", forbidden: []string{module},
			allowed: []string{module + "/daemon/internal/attach"},
			reason:  "kubelet is one source of devices: its client knows the errors of an ADD and nothing else",
		},
		{
			packages: "netwatcher", forbidden: []string{module},
			allowed: []string{module + "/netwatcher", module + "/internal/network", module + "/internal/text", module + "/api"},
			reason:  "desired host links are pure; the kernel stands behind an interface of netwatcher's own",
		},
		{
			packages: "svcwatcher", forbidden: []string{module},
			allowed: []string{module + "/internal/network", module + "/api"},
			reason:  "which endpoints a Service has is arithmetic, so that any order of events can be tried",
		},
		{
			packages: "controller/internal/services", forbidden: []string{
				module + "/daemon", module + "/controller/internal/addresses", module + "/controller/internal/networks", module + "/controller/internal/webhook",
			},
			reason: "Services stand on objects alone, like the other parts of the controller",
		},
		{
			packages: "controller/internal/networkviews", forbidden: []string{
				module + "/daemon", module + "/controller/internal",
			},
			reason: "views stand on objects alone, like the other parts of the controller",
		},
		{
			packages: "controller/internal/nodelabels", forbidden: []string{
				module + "/daemon", module + "/controller/internal",
			},
			reason: "labels of Nodes stand on NodeNetworks alone, like the other parts of the controller",
		},
		{
			packages: "placement/internal/apportion", forbidden: append([]string{module, "k8s.io"}, pure...),
			allowed:    []string{module + "/placement/internal/apportion"},
			transitive: true,
			reason:     "division is arithmetic: standard library only, so that it can be proved alone",
		},
		{
			packages: "placement/internal/debugpath", forbidden: append([]string{module, "k8s.io"}, pure...),
			allowed:    []string{module + "/placement/internal/debugpath"},
			transitive: true,
			reason:     "what may pass to a cluster is decided from a path alone, so that it can be fuzzed",
		},
		{
			packages: "placement/internal/tunnel", forbidden: append([]string{module}, clients...),
			allowed: []string{module + "/placement/internal/tunnel"},
			reason:  "the tunnel carries requests, and decides nothing",
		},
		{
			packages: "placement/internal", forbidden: []string{module},
			allowed: []string{module + "/api", module + "/placement/internal"},
			reason:  "placement decides in pure functions: an outage, a restart or a race is an input like any other",
		},
		{
			packages: "placement/handover", forbidden: concat([]string{module}, clients, []string{"net/http", "os"}),
			allowed: []string{module + "/api", module + "/placement/internal", module + "/placement/handover"},
			reason:  "what an import changes, and may not change, is a function of the objects of both API servers, so that any object can be tried",
		},
		{
			packages: "placement/explain", forbidden: concat([]string{module}, clients, []string{"net/http", "os"}),
			allowed: []string{module + "/api", module + "/placement/internal", module + "/placement/explain"},
			reason:  "an explanation is what the hub's own functions say of the same objects, and nothing that the plugin decides itself",
		},
		{
			packages: "placement/hub/internal/desiredstate", forbidden: []string{module + "/placement/hub/internal/apply"},
			reason: "the desired state of an object is computed from its Scope, without any client, clock or log",
		},
		{
			packages: "placement/agent", forbidden: []string{module},
			allowed: []string{
				module + "/api", module + "/placement/agent", module + "/internal/relist",
				module + "/internal/app", module + "/internal/logging", module + "/internal/version",
				module + "/placement/internal/debugpath", module + "/placement/internal/tunnel", module + "/placement/internal/room",
				module + "/placement/internal/traffic",
			},
			reason: "the agent applies Works: of the hub it knows the kinds, how the hub's debug requests arrive, how the hub reads the room, and the bounds of endpoints",
		},
		{
			packages: "placement/hub", forbidden: []string{
				module + "/placement/agent", module + "/daemon", module + "/controller", module + "/cni", module + "/internal/kube",
			},
			reason: "the hub meets agents at its API server only, and runs on no node",
		},
		{
			packages: "", except: []string{"placement", "api", "deployments", "internal/kubectl", "internal/invite", "operator/internal/manifests", "cmd", "scripts", "test"},
			forbidden: []string{module + "/placement", module + "/api/placement", module + "/deployments/placement"},
			reason:    "networks work without any hub",
		},
		{
			packages: "operator", forbidden: []string{module},
			allowed: []string{
				module + "/api/operator", module + "/api/danm", module + "/internal/attachments", module + "/deployments", module + "/operator",
				module + "/internal/app", module + "/internal/logging", module + "/internal/manager", module + "/internal/securemetrics", module + "/internal/text", module + "/internal/version",
			},
			reason: "the operator installs programs: of them it knows the manifests, and what an uninstallation reads of networks",
		},
		{
			packages: "operator/internal/render", forbidden: concat([]string{module}, clients, []string{"net/http", "os"}),
			allowed: []string{module + "/api/operator", module + "/operator/internal/manifests", module + "/internal/version"},
			reason:  "what an Installation describes, and why it cannot work, is a function of it, so that any template can be tried",
		},
		{
			packages: "operator/internal/rollout", forbidden: concat([]string{module}, clients, []string{"net/http", "os"}),
			allowed: []string{module + "/api/operator", module + "/operator/internal/render", module + "/internal/text"},
			reason:  "how far a roll-out may go is a function of Pods and time, so that any order of events can be tried",
		},
		{
			packages: "", forbidden: []string{module + "/cmd"},
			reason: "programs are imported by nobody",
		},
		{
			packages: "", except: []string{"test", "controller/admissiontest", "daemon/internal/bench", "daemon/internal/kubetest", "scripts/mistakes"}, forbidden: []string{module + "/test"},
			reason: "no product code needs the lab",
		},
	}
}

// clusterPackages are the daemon's packages that talk to the API server.
func clusterPackages() []string {
	var all []string
	for _, name := range []string{"kubeclient", "nodestate", "networkcache", "danmep", "pods"} {
		all = append(all, module+"/daemon/internal/"+name)
	}
	return all
}

// breaks returns the imports of p that the law forbids.
func (l law) breaks(p pkg) []string {
	path, ours := modulePath(p.ImportPath)
	if !ours || !under(path, l.packages) || anyUnder(path, l.except) {
		return nil
	}
	imports := p.Imports
	if l.transitive {
		imports = p.Deps
	}
	var found []string
	for _, imp := range imports {
		if anyUnder(imp, l.forbidden) && !anyUnder(imp, l.allowed) {
			found = append(found, imp)
		}
	}
	return found
}

func anyUnder(path string, folders []string) bool {
	for _, f := range folders {
		if under(path, f) {
			return true
		}
	}
	return false
}

// under reports whether path is folder or below it; everything is under "".
func under(path, folder string) bool {
	return folder == "" || path == folder || strings.HasPrefix(path, folder+"/")
}

func concat(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
