// SPDX-License-Identifier: Apache-2.0

package preflight

import "fmt"

// Facts are what `patchbayd preflight` reads on a node and prints as JSON.
type Facts struct {
	// Version is that of patchbayd.
	Version string `json:"version"`
	// Kernel is the release of the running kernel, as uname -r prints it.
	Kernel string `json:"kernel"`
	// Options tells for each kernel option of KernelOptions whether the kernel has it.
	Options map[string]Availability `json:"options"`
	// ModulesDisabled means that the kernel loads no more modules (sysctl kernel.modules_disabled).
	ModulesDisabled bool `json:"modulesDisabled,omitempty"`
	// IPv6 tells whether the kernel has IPv6.
	IPv6 bool `json:"ipv6"`
	// MaxNetworkNamespaces is the sysctl user.max_net_namespaces; -1 if it could not be read.
	MaxNetworkNamespaces int `json:"maxNetworkNamespaces"`
	// Listening are the TCP ports on which a program of the node listens, not only on a loopback address.
	Listening []int `json:"listening,omitempty"`
	// NICs are the network interfaces that networks can be on.
	NICs []NIC    `json:"nics"`
	CNI  CNIFacts `json:"cni"`
	// Errors are about what could not be read.
	Errors []string `json:"errors,omitempty"`
}

// Truncate bounds the lists that are printed. A node can make its Pod print anything.
func (f *Facts) Truncate() {
	const most = 1000
	var cut []string
	truncate(&f.NICs, "NICs", most, &cut)
	truncate(&f.CNI.Files, "CNI configurations", most, &cut)
	truncate(&f.CNI.Earlier, "CNI configurations before Patchbay's", most, &cut)
	truncate(&f.CNI.Suspended, "renamed CNI configurations", most, &cut)
	truncate(&f.CNI.UnreadableDirs, "unreadable folders", most, &cut)
	truncate(&f.CNI.RuntimeBinDirs, "folders of plugins", most, &cut)
	truncate(&f.CNI.OtherConfDirs, "folders of configurations", most, &cut)
	truncate(&f.Errors, "errors", most, &cut)
	f.Errors = append(f.Errors, cut...)
}

// truncate bounds a list, and notes which one it has shortened.
func truncate[E any](list *[]E, name string, most int, cut *[]string) {
	if n := len(*list); n > most {
		*list = (*list)[:most]
		*cut = append(*cut, fmt.Sprintf("the node has %d %s: only the first %d are checked", n, name, most))
	}
}

// NIC is a network interface of a node.
type NIC struct {
	Name string `json:"name"`
	MTU  int    `json:"mtu"`
	// State is the operational state, such as up or down.
	State string `json:"state"`
}

// CNIFacts are what a node has of CNI plugins. All paths are those of the node.
type CNIFacts struct {
	BinDir  string `json:"binDir"`
	ConfDir string `json:"confDir"`
	// HasBinDir and HasConfDir tell whether the folders exist.
	HasBinDir  bool `json:"hasBinDir"`
	HasConfDir bool `json:"hasConfDir"`
	// UnreadableDirs are those of BinDir and ConfDir that could not be read. Facts.Errors has why.
	UnreadableDirs []string `json:"unreadableDirs,omitempty"`
	// Files are the names of the CNI configurations in ConfDir, in the order in which runtimes read them.
	Files []string `json:"files,omitempty"`
	// Earlier are those of Files that sort before Patchbay's.
	Earlier []EarlierFile `json:"earlier,omitempty"`
	// Suspended are files that Cilium has renamed to keep the runtime from them (*.cilium_bak).
	Suspended []string `json:"suspended,omitempty"`
	// Chosen is the file with which Patchbay would attach Pods without an annotation, and ChosenError why it cannot. Both are
	// empty if ConfDir could not be read.
	Chosen      string `json:"chosen,omitempty"`
	ChosenError string `json:"chosenError,omitempty"`
	// RuntimeBinDirs and RuntimeConfDir are in the configuration of the container runtime, in file RuntimeFile.
	// They are empty if it does not name them.
	RuntimeFile    string   `json:"runtimeFile,omitempty"`
	RuntimeBinDirs []string `json:"runtimeBinDirs,omitempty"`
	RuntimeConfDir string   `json:"runtimeConfDir,omitempty"`
	// RuntimeNetwork is the name of the only configuration that CRI-O uses, if its option cni_default_network is set.
	RuntimeNetwork string `json:"runtimeNetwork,omitempty"`
	// OtherConfDirs are further folders that are known to have CNI configurations, and have some.
	OtherConfDirs []string `json:"otherConfDirs,omitempty"`
}

// EarlierFile is a CNI configuration that the runtime reads before Patchbay's.
type EarlierFile struct {
	Name string `json:"name"`
	// CallsPatchbay tells whether its plugin calls Patchbay, as Multus does.
	CallsPatchbay bool `json:"callsPatchbay,omitempty"`
	// Error is why the file is invalid.
	Error string `json:"error,omitempty"`
}

// OwnConfiguration is the name of Patchbay's own CNI configuration. Runtimes use the file that sorts first.
const OwnConfiguration = "00-patchbay.conflist"
