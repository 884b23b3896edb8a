// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Requirements are what the user wants to use.
type Requirements struct {
	// Features must work on each node.
	Features []Feature
	// NICs must exist on each node.
	NICs []string
	// DefaultDelegate is the file that Pods without an annotation must get on each node. Empty is the first one.
	DefaultDelegate string
}

// These are the TCP ports on a node that the manifests give to Patchbay's programs. The daemon runs on each node, the
// controller on two, and the operator, if there is one, on one.
func daemonPorts() []int     { return []int{9640, 9644} }
func controllerPorts() []int { return []int{9641, 9642, 9645} }
func operatorPorts() []int   { return []int{9647, 9648} }

// oldestKernel is the oldest version of Linux with which Patchbay works.
func oldestKernel() [2]int { return [2]int{5, 10} }

// sourceGuardKernel is the oldest version of Linux with which source_guard works.
func sourceGuardKernel() [2]int { return [2]int{5, 16} }

// CheckFacts checks what was read on a node.
func CheckFacts(node string, f *Facts, want Requirements) []Result {
	r := &results{node: node}
	r.checkOptions(f, want)
	r.checkSysctls(f)
	r.checkNICs(f, want)
	r.checkFolders(&f.CNI)
	r.checkConfigurations(&f.CNI, want)
	r.checkPorts(f)
	for _, text := range f.Errors {
		r.warn("node's files", text, "Check by hand what could not be read.")
	}
	return r.all
}

// checkOptions checks the options of the kernel. Options that are there make one result together.
func (r *results) checkOptions(f *Facts, want Requirements) {
	var there []string
	kernel, known := parseVersion(f.Kernel)
	for _, o := range KernelOptions() {
		switch {
		case o.Feature != "" && !slices.Contains(want.Features, o.Feature):
		case known && o.IncludedFrom != [2]int{} && !older(kernel, o.IncludedFrom):
		case f.Options[o.Name] == BuiltIn:
			there = append(there, o.Name)
		default:
			r.reportOption(o, f)
		}
	}
	if len(there) > 0 {
		r.ok("kernel modules", strings.Join(there, ", "))
	}
}

// reportOption reports an option that the running kernel lacks, or may lack.
func (r *results) reportOption(o KernelOption, f *Facts) {
	check, effect := "module "+o.Name, o.Without
	if o.Module == "" {
		check = "kernel option " + o.Name
	}
	if effect == "" {
		effect = fmt.Sprintf("feature %s does not work", o.Feature)
	}
	switch available := f.Options[o.Name]; {
	case available == Loadable && !f.ModulesDisabled:
		r.warn(check, "not loaded", fmt.Sprintf("Run `modprobe %s` on the node, and write the name into a file in /etc/modules-load.d: Patchbay loads no modules, and the kernel may not load this one on demand.", o.Name))
	case available == Loadable:
		r.fail(check, "not loaded, and the sysctl kernel.modules_disabled is 1: "+effect,
			fmt.Sprintf("Write %s into a file in /etc/modules-load.d, and restart the node.", o.Name))
	case available == Missing && o.Without == "":
		r.fail(check, "missing: "+effect, r.adviseOption(o))
	case available == Missing:
		r.warn(check, "missing: "+effect, r.adviseOption(o))
	default:
		r.warn(check, "unknown: the node has neither the list of the kernel's modules nor its configuration",
			fmt.Sprintf("Check that the kernel has %s; without it, %s.", o.Config, effect))
	}
}

func (r *results) adviseOption(o KernelOption) string {
	advice := fmt.Sprintf("Use a kernel with %s, or install the package with the kernel's further modules", o.Config)
	if o.Feature != "" {
		advice += fmt.Sprintf("; or leave %s out of --features", o.Feature)
	}
	return advice + "."
}

func (r *results) checkSysctls(f *Facts) {
	const check = "sysctls"
	if f.MaxNetworkNamespaces == 0 {
		r.fail(check, "user.max_net_namespaces is 0: no Pod gets a network namespace", "Set user.max_net_namespaces to its default in /etc/sysctl.d.")
		return
	}
	if !f.IPv6 {
		r.warn(check, "the kernel has no IPv6: networks with net6 do not work on this node", "Remove ipv6.disable=1 from the kernel's command line, or use IPv4 only.")
		return
	}
	r.ok(check, "IPv6, network namespaces")
}

// checkNICs checks that the NICs exist, and lists all with their MTUs.
func (r *results) checkNICs(f *Facts, want Requirements) {
	const check = "NICs"
	var list []string
	missing := slices.Clone(want.NICs)
	for _, nic := range f.NICs {
		list = append(list, fmt.Sprintf("%s %d %s", nic.Name, nic.MTU, nic.State))
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == nic.Name })
	}
	found := strings.Join(list, ", ")
	switch {
	case len(missing) > 0:
		r.fail(check, fmt.Sprintf("missing %s; found: %s", strings.Join(missing, ", "), found),
			"Give the NIC the same name on each node, for example with a .link file of systemd-udevd, or correct --nics.")
	case len(list) == 0:
		r.warn(check, "no network card, bond, bridge or VLAN was found", "Networks need a host_device: name one that the node has.")
	default:
		r.ok(check, found)
	}
}

// foldersRemedy is what to do if the runtime reads other folders than the daemon installs into.
const foldersRemedy = "Check which folders the runtime reads (its configuration may be in another file). Change the host paths of the DaemonSet's volumes cni-bin and cni-conf as in docs/install-platforms.md, and repeat the preflight with --cni-bin-dir and --cni-conf-dir."

// checkFolders checks that the runtime reads the folders into which the daemon would install.
func (r *results) checkFolders(c *CNIFacts) {
	const check = "CNI folders"
	// The runtime may have been started with another file than the one that was read. If both folders have what the
	// runtime needs, it probably uses them.
	report := r.fail
	if c.Chosen != "" && c.ChosenError == "" {
		report = r.warn
	}
	var missing []string
	if !c.HasConfDir && !slices.Contains(c.UnreadableDirs, c.ConfDir) {
		missing = append(missing, c.ConfDir)
	}
	if !c.HasBinDir && !slices.Contains(c.UnreadableDirs, c.BinDir) {
		missing = append(missing, c.BinDir)
	}
	switch {
	case c.RuntimeConfDir != "" && path.Clean(c.RuntimeConfDir) != path.Clean(c.ConfDir):
		report(check, fmt.Sprintf("%s has the folder of configurations %s: must be %s", c.RuntimeFile, c.RuntimeConfDir, c.ConfDir), foldersRemedy)
	case len(c.RuntimeBinDirs) > 0 && !slices.ContainsFunc(c.RuntimeBinDirs, func(dir string) bool { return path.Clean(dir) == path.Clean(c.BinDir) }):
		report(check, fmt.Sprintf("%s has the folder of plugins %s: must be %s", c.RuntimeFile, strings.Join(c.RuntimeBinDirs, ", "), c.BinDir), foldersRemedy)
	case len(c.Files) == 0 && len(c.OtherConfDirs) > 0 && !slices.Contains(c.UnreadableDirs, c.ConfDir):
		r.fail(check, fmt.Sprintf("%s has no CNI configuration, but %s has: the runtime probably reads that folder", c.ConfDir, strings.Join(c.OtherConfDirs, ", ")), foldersRemedy)
	case len(missing) > 0:
		r.warn(check, strings.Join(missing, " and ")+": no such folder", "Check that the runtime reads these folders, and install a CNI plugin for the Pods' first interface.")
	case len(c.UnreadableDirs) == 0: // otherwise, the errors have a result each
		r.ok(check, c.BinDir+", "+c.ConfDir)
	}
}

// checkConfigurations checks what the runtime reads beside Patchbay's configuration.
func (r *results) checkConfigurations(c *CNIFacts, want Requirements) {
	const check = "CNI configuration"
	if len(c.Suspended) > 0 {
		// Cilium never renames the files back. Whether it renames files now is in its own configuration, in Cluster.
		r.warn(check, fmt.Sprintf("Cilium has renamed %s: with cni.exclusive, it would rename %s, too", strings.Join(c.Suspended, ", "), OwnConfiguration),
			"Check that cni.exclusive of Cilium is false now, or that Cilium is gone. Then remove these files if they are old.")
	}
	if c.RuntimeNetwork != "" {
		r.fail(check, fmt.Sprintf("CRI-O uses the network %s only (cni_default_network): it would not call Patchbay", c.RuntimeNetwork),
			"Remove cni_default_network from CRI-O's configuration, so that it uses the file that sorts first. On OpenShift, see docs/install-platforms.md.")
	}
	r.checkEarlierFiles(c)
	switch {
	case c.ChosenError != "" && c.Chosen == "" && want.DefaultDelegate != "":
		r.fail(check, "the node daemon would not be ready: "+c.ChosenError,
			"Install or correct the CNI plugin for the Pods' first interface on this node, or name another file in defaultDelegate.")
	case c.ChosenError != "":
		r.warn(check, "Pods without annotation would not start: "+c.ChosenError,
			"Install or correct the CNI plugin for the Pods' first interface before Patchbay, or create a ClusterNetwork default right after it.")
	case c.Chosen != "": // otherwise, the folder could not be read, and its error has a result
		r.ok(check, "Pods without annotation would get "+c.Chosen)
	}
}

// checkEarlierFiles checks that the runtime calls Patchbay in spite of the files that it reads before Patchbay's.
func (r *results) checkEarlierFiles(c *CNIFacts) {
	const check = "CNI configuration"
	for _, file := range c.Earlier {
		switch {
		case file.Error != "":
			r.fail(check, fmt.Sprintf("%s sorts before %s and is invalid: %s", file.Name, OwnConfiguration, file.Error),
				"Correct or remove the file, and change the program that writes it.")
		case file.CallsPatchbay:
			r.warn(check, fmt.Sprintf("%s sorts before %s and calls another configuration, as Multus does: Patchbay's only after a restart of Multus", file.Name, OwnConfiguration),
				"Restart the Pods of Multus after the installation, so that it calls Patchbay. See docs/install-platforms.md#multus.")
		default:
			r.fail(check, fmt.Sprintf("%s sorts before %s: the runtime would not call Patchbay", file.Name, OwnConfiguration),
				"Remove the file if no Pod needs it, or rename it, and change the program that writes it.")
		}
	}
}

// checkPorts checks that no other program listens on Patchbay's ports.
func (r *results) checkPorts(f *Facts) {
	const check = "ports"
	if slices.Contains(f.CNI.Files, OwnConfiguration) {
		r.ok(check, "not checked: Patchbay is installed on this node")
		return
	}
	used := func(ports []int) []string {
		var found []string
		for _, port := range ports {
			if slices.Contains(f.Listening, port) {
				found = append(found, strconv.Itoa(port))
			}
		}
		return found
	}
	daemon, controller, operator := used(daemonPorts()), used(controllerPorts()), used(operatorPorts())
	if len(daemon) > 0 {
		report := r.fail
		if slices.Contains(f.CNI.UnreadableDirs, f.CNI.ConfDir) {
			report = r.warn // the program may be Patchbay's
		}
		report(check, "another program listens on TCP port "+strings.Join(daemon, ", "),
			"Stop the program, or give the DaemonSet patchbayd other ports with the flags --health-address and --metrics-address.")
	}
	if len(controller) > 0 {
		r.warn(check, fmt.Sprintf("another program listens on TCP port %s, and the controller cannot run here", strings.Join(controller, ", ")),
			"Stop the program, keep the controller off the node, or give the Deployment patchbay-controller other ports with the flags --health-address, --metrics-address and --webhook-address.")
	}
	if len(operator) > 0 {
		r.warn(check, fmt.Sprintf("another program listens on TCP port %s, and patchbay-operator cannot run here, unless the program is the operator itself", strings.Join(operator, ", ")),
			"Nothing if the operator is installed already, or if you use none. Otherwise stop the program, keep the operator off the node, or give the Deployment patchbay-operator other ports with the flags --health-address and --metrics-address.")
	}
	if len(daemon)+len(controller)+len(operator) == 0 {
		var all []string
		for _, port := range slices.Sorted(slices.Values(slices.Concat(daemonPorts(), controllerPorts(), operatorPorts()))) {
			all = append(all, strconv.Itoa(port))
		}
		r.ok(check, "TCP "+strings.Join(all, ", ")+" are free")
	}
}

// parseVersion returns major and minor of a version such as 6.1.0-28-amd64 or v1.35.2+k3s1.
func parseVersion(text string) (version [2]int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(text, "v"), ".", 3)
	if len(parts) < 2 {
		return version, false
	}
	for i := range version {
		digits := parts[i]
		if end := strings.IndexFunc(digits, func(c rune) bool { return c < '0' || c > '9' }); end >= 0 {
			digits = digits[:end]
		}
		number, err := strconv.Atoi(digits)
		if err != nil {
			return version, false
		}
		version[i] = number
	}
	return version, true
}

func older(a, b [2]int) bool { return slices.Compare(a[:], b[:]) < 0 }
