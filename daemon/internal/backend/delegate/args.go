// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// searchPath is the PATH of plugins: some run iptables or ip.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// cniArgs are the CNI parameters (CNI 1.1, section 2, "Parameters"). A plugin gets them and
// PATH, and nothing of the daemon's environment.
type cniArgs struct {
	command, containerID, netns, ifName, path, podArgs string
}

var _ invoke.CNIArgs = cniArgs{}

// newCNIArgs returns the parameters for one interface, with the Pod in the form of containerd
// and CRI-O.
func newCNIArgs(rec *attach.Record, ifc *attach.Interface) cniArgs {
	return cniArgs{
		containerID: rec.ContainerID, netns: rec.Netns, ifName: ifc.Name, path: rec.Path,
		podArgs: fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s",
			rec.PodNamespace, rec.PodName, rec.ContainerID, rec.PodUID),
	}
}

// withCommand returns the arguments for a command.
func (a cniArgs) withCommand(command string) cniArgs {
	a.command = command
	return a
}

// searchDirs are the absolute directories of CNI_PATH: a relative one would depend on the
// daemon's working directory.
func (a cniArgs) searchDirs() []string {
	var dirs []string
	for _, dir := range filepath.SplitList(a.path) {
		if filepath.IsAbs(dir) && !strings.ContainsRune(dir, 0) {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	return dirs
}

// AsEnv returns the plugin's environment.
func (a cniArgs) AsEnv() []string {
	return []string{
		searchPath,
		"CNI_COMMAND=" + a.command,
		"CNI_CONTAINERID=" + a.containerID,
		"CNI_NETNS=" + a.netns,
		"CNI_IFNAME=" + a.ifName,
		"CNI_PATH=" + strings.Join(a.searchDirs(), ":"),
		"CNI_ARGS=" + a.podArgs,
	}
}
