// SPDX-License-Identifier: Apache-2.0

package render

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nodeNameVariable is the name of a Pod's node in a flag.
const nodeNameVariable = "$(NODE_NAME)"

const (
	// minGracePeriod is how many seconds the node daemon may take to stop, with the clean-up of the node. The default
	// template has it.
	minGracePeriod = 60
	// defaultGracePeriod is what the API server sets if a template has no grace period.
	defaultGracePeriod = 30
)

// checkNode returns why the node daemon cannot work.
func checkNode(c *checker) {
	spec := c.path.Child("spec")
	if !c.pod.Spec.HostNetwork {
		c.rejectf(spec.Child("hostNetwork"), "must be true: the daemon makes the links of the node")
	}
	if !c.pod.Spec.HostPID {
		c.rejectf(spec.Child("hostPID"), "must be true: CNI plugins that the daemon runs name their namespace by process ID")
	}
	seconds := int64(defaultGracePeriod)
	if s := c.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	if seconds < minGracePeriod {
		c.rejectf(spec.Child("terminationGracePeriodSeconds"), "must be at least %d, because the daemon cleans up the node when it is uninstalled: got %d", minGracePeriod, seconds)
	}
	c.checkScheduling(spec)
	if name := c.flag("node-name", nodeNameVariable); name != nodeNameVariable && len(c.main().Command) == 0 {
		c.rejectf(c.at("args"), "flag --node-name must be %s, because each Pod is for its own node: got %q", nodeNameVariable, name)
	}
	c.checkCapabilities()
	for _, folder := range nodeFolders(c) {
		c.checkFolder(folder)
	}
}

// checkScheduling rejects what takes the daemon from all nodes at once: Kubernetes deletes the Pods on nodes that do
// not match, without regard to the update strategy.
func (c *checker) checkScheduling(spec *field.Path) {
	if name := c.pod.Spec.NodeName; name != "" {
		c.rejectf(spec.Child("nodeName"), "must be left out, because the daemon runs on many nodes: got %s", name)
	}
	if system, ok := c.pod.Spec.NodeSelector[corev1.LabelOSStable]; ok && system != string(corev1.Linux) {
		c.rejectf(spec.Child("nodeSelector").Key(corev1.LabelOSStable), "must be linux: got %s", system)
	}
	if system := c.pod.Spec.OS; system != nil && system.Name != corev1.Linux {
		c.rejectf(spec.Child("os", "name"), "must be linux: got %s", system.Name)
	}
}

// folder is a folder of the node that the daemon needs.
type folder struct {
	// volume is the name of the volume in the default template, and at the path in the container.
	volume, at string
	// host is the path on the node. It is empty for those that differ between runtimes.
	host string
	// readOnly allows a mount that is not written, and follows requires that mounts on the node appear later.
	readOnly, follows bool
}

// nodeFolders returns the folders of the node that the daemon needs, in the places where its flags say.
func nodeFolders(c *checker) []folder {
	return []folder{
		{volume: "cni-bin", at: c.flag("cni-bin-dir", "/opt/cni/bin")},
		{volume: "cni-conf", at: c.flag("cni-conf-dir", "/etc/cni/net.d")},
		{volume: "run", at: "/run/patchbay", host: "/run/patchbay"},
		{volume: "state", at: path.Dir(c.flag("journal", "/var/lib/patchbay/journal")), host: "/var/lib/patchbay"},
		{volume: "netns", at: "/run/netns", follows: true},
		{volume: "netns", at: "/var/run/netns", follows: true},
		{volume: "host", at: c.flag("host-root", "/host"), host: "/", readOnly: true, follows: true},
	}
}

// checkFolder requires that a folder of the node is mounted.
func (c *checker) checkFolder(f folder) {
	mounts := c.at("volumeMounts")
	m := c.mount(f.at)
	if m == nil {
		c.rejectf(mounts, "must have a mount at %s, by default of the volume %s", f.at, f.volume)
		return
	}
	if m.ReadOnly && !f.readOnly {
		c.rejectf(mounts.Key(m.MountPath), "must not be read-only, because the daemon writes there")
	}
	if m.SubPath != "" || m.SubPathExpr != "" {
		c.rejectf(mounts.Key(m.MountPath), "must have no subPath, because the daemon needs the whole folder of the node")
	}
	propagated := m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone
	if f.follows && !propagated {
		c.rejectf(mounts.Key(m.MountPath).Child("mountPropagation"), "must be HostToContainer, because the daemon needs what the node mounts later")
	}
	volumes := c.path.Child("spec", "volumes").Key(m.Name)
	v := c.volume(m.Name)
	switch {
	case v == nil || v.HostPath == nil:
		c.rejectf(volumes, "must be a hostPath, because the daemon needs the folder of the node at %s", f.at)
	case f.host != "" && path.Clean(v.HostPath.Path) != f.host:
		c.rejectf(volumes.Child("hostPath", "path"), "must be %s, where the plugin and earlier daemons look: got %s", f.host, v.HostPath.Path)
	}
}

// checkCapabilities requires the capabilities of the default template, and root.
func (c *checker) checkCapabilities() {
	own := c.main().SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	whole := c.pod.Spec.SecurityContext
	if whole == nil {
		whole = &corev1.PodSecurityContext{}
	}
	user := own.RunAsUser
	if user == nil {
		user = whole.RunAsUser
	}
	notRoot := own.RunAsNonRoot
	if notRoot == nil {
		notRoot = whole.RunAsNonRoot
	}
	if user != nil && *user != 0 {
		c.rejectf(c.at("securityContext", "runAsUser"), "must be 0 or not set, because the folders of the node belong to root: got %d", *user)
	}
	if notRoot != nil && *notRoot {
		c.rejectf(c.at("securityContext", "runAsNonRoot"), "must not be true, because the folders of the node belong to root")
	}
	if own.Privileged != nil && *own.Privileged {
		return
	}
	var added, dropped []corev1.Capability
	if own.Capabilities != nil {
		added, dropped = own.Capabilities.Add, own.Capabilities.Drop
	}
	for _, need := range (&template{c.defaults}).container(c.container).SecurityContext.Capabilities.Add {
		if slices.Contains(dropped, need) || !slices.Contains(added, need) && !slices.Contains(added, "ALL") {
			c.rejectf(c.at("securityContext", "capabilities", "add"), "must have %s", need)
		}
	}
}

// checkController returns why the controller cannot work.
func checkController(c *checker) {
	if len(c.main().Command) == 0 && c.flag("webhook-address", "") == "" {
		c.rejectf(c.at("args"), "flag --webhook-address must not be empty, because the API server rejects networks without the webhooks")
	}
}

// checkAgent returns why the agent cannot work.
func checkAgent(c *checker, cluster string) {
	const hubFolder = "/etc/patchbay/hub"
	if c.mount(hubFolder) == nil {
		c.rejectf(c.at("volumeMounts"), "must have a mount at %s, by default of the volume hub, which is the Secret with the hub's kubeconfig", hubFolder)
	} else if c.volume(c.mount(hubFolder).Name) == nil {
		c.rejectf(c.path.Child("spec", "volumes"), "must have the volume %s, which is mounted at %s", c.mount(hubFolder).Name, hubFolder)
	}
	i := slices.IndexFunc(c.main().Env, func(e corev1.EnvVar) bool { return e.Name == "CLUSTER" })
	if i < 0 || c.main().Env[i].Value != cluster {
		c.rejectf(c.at("env").Key("CLUSTER"), "must be left out, because the field cluster of the part sets it to %s", cluster)
	}
}
