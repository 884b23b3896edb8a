// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/patchbay-cni/patchbay/test/source"
)

// exception is what a container has that the others have not, with the reason.
type exception struct {
	capabilities []corev1.Capability
	root         bool
	hostPID      bool
	hostPath     bool
}

// exceptions by container. The node daemon works on the node's network: it runs as
// root, as files below /opt/cni and /etc/cni are root's, in the node's process
// namespace, as delegates name their namespace by process, and enters Pods' network
// namespaces (SYS_ADMIN), makes links (NET_ADMIN), sends ARP (NET_RAW), runs delegates in
// the node's file system (SYS_CHROOT) and lets them write there (DAC_OVERRIDE).
func exceptions() map[string]exception {
	return map[string]exception{
		"patchbayd": {
			capabilities: []corev1.Capability{"DAC_OVERRIDE", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_CHROOT"},
			root:         true, hostPID: true, hostPath: true,
		},
	}
}

// Every container of the manifests has the least rights, or a reason for more.
func TestContainersHaveTheLeastRights(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for path, pod := range podsOf(t) {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			found[c.Name] = true
			for _, fault := range tooManyRights(&pod, &c, exceptions()[c.Name]) {
				t.Errorf("%s: container %s: %s", path, c.Name, fault)
			}
		}
	}
	for _, name := range []string{"patchbayd", "patchbay-controller", "patchbay-hub", "patchbay-agent", "patchbay-operator"} {
		if !found[name] {
			t.Errorf("no container %s in the manifests, found %v", name, found)
		}
	}
}

// tooManyRights lists what a container has beyond its exception.
func tooManyRights(pod *corev1.PodSpec, c *corev1.Container, allowed exception) []string {
	var faults []string
	check := func(ok bool, fault string) {
		if !ok {
			faults = append(faults, fault)
		}
	}
	own, whole := c.SecurityContext, pod.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	if whole == nil {
		whole = &corev1.PodSecurityContext{}
	}
	profile := own.SeccompProfile
	if profile == nil {
		profile = whole.SeccompProfile
	}
	check(profile != nil && profile.Type == corev1.SeccompProfileTypeRuntimeDefault, "seccompProfile must be RuntimeDefault")
	check(own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation, "allowPrivilegeEscalation must be false")
	check(own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem, "readOnlyRootFilesystem must be true")
	check(own.Privileged == nil || !*own.Privileged, "privileged must be false")
	check(allowed.root || whole.RunAsNonRoot != nil && *whole.RunAsNonRoot, "runAsNonRoot must be true")
	check(allowed.hostPID || !pod.HostPID, "hostPID must be false")
	check(!pod.HostIPC, "hostIPC must be false")
	check(allowed.hostPath || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }), "no volume may be a hostPath")
	capabilities := own.Capabilities
	if capabilities == nil {
		capabilities = &corev1.Capabilities{}
	}
	check(slices.Contains(capabilities.Drop, "ALL"), "capabilities must drop ALL")
	for _, added := range capabilities.Add {
		check(slices.Contains(allowed.capabilities, added), "capability "+string(added)+" has no reason")
	}
	return faults
}

// podsOf reads the Pod templates of all manifests, by file and name.
func podsOf(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	root, err := source.Path("deployments")
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]corev1.PodSpec{}
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			var o struct {
				Kind string
				Spec struct {
					Template *corev1.PodTemplateSpec
				}
			}
			// Other kinds have other specs: whoever has a template is what counts.
			if err := yaml.Unmarshal(document, &o); err == nil && o.Spec.Template != nil {
				pods[strings.TrimPrefix(path, root)+" "+o.Kind] = o.Spec.Template.Spec
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}
