// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// ErrInvalidRequest means that a field of a request is invalid (CNI error 4). The message names the
// field and the rule.
var ErrInvalidRequest = errors.New("invalid request")

// Request is one ADD or DEL, as parsed by the daemon's server.
type Request struct {
	// ContainerID is CNI_CONTAINERID, the ID of the sandbox.
	ContainerID string
	// IfName is CNI_IFNAME, the name of the Pod's first interface.
	IfName string
	// Netns is the absolute path of the Pod's network namespace. It may be empty on DEL.
	Netns string
	// Path is CNI_PATH: the absolute folders of CNI plugins, separated by colons.
	Path string
	// NetName is the name of the CNI network configuration.
	NetName string
	// NamingScheme is the naming scheme of the configuration, see network.InterfaceNames.
	NamingScheme string
	// CNIDir is the absolute folder of the delegates' configurations.
	CNIDir string
	// RuntimeConfig has what the runtime passes for the capabilities of the configuration, such as the Pod's
	// host ports; empty for nothing.
	RuntimeConfig json.RawMessage
	// PodNamespace, PodName and PodUID name the Pod. ADD requires them, except for the UID, which older
	// runtimes do not pass.
	PodNamespace, PodName, PodUID string
}

// Limits of the kernel and of Kubernetes, in bytes.
const (
	maxIfName = 15 // IFNAMSIZ less the closing zero
	maxName   = 253
	maxPath   = 4095 // PATH_MAX less the closing zero
)

// validateKey validates the journal's key, which ADD and DEL require.
func (r *Request) validateKey() error {
	if !validName(r.ContainerID) {
		return invalidField("container ID", r.ContainerID, "at most 253 letters, digits, '_', '.' or '-', a letter or digit first")
	}
	if !validIfName(r.IfName) {
		return invalidField("interface name", r.IfName, "1-15 bytes without '/', ':' or white space")
	}
	return nil
}

// validateAdd validates what ADD requires.
func (r *Request) validateAdd() error {
	if err := r.validateKey(); err != nil {
		return err
	}
	for _, f := range []struct{ field, value string }{
		{"Pod namespace", r.PodNamespace}, {"Pod name", r.PodName}, {"network name", r.NetName},
	} {
		if !validName(f.value) {
			return invalidField(f.field, f.value, "at most 253 letters, digits, '_', '.' or '-', a letter or digit first")
		}
	}
	if r.PodUID != "" && !validName(r.PodUID) {
		return invalidField("Pod UID", r.PodUID, "a UID, or nothing")
	}
	if !validPath(r.Netns) {
		return invalidField("network namespace", r.Netns, "an absolute path without '..' or '//'")
	}
	return nil
}

// invalidField returns an error about a field that breaks a rule.
func invalidField(field, value, rule string) error {
	return fmt.Errorf("%w: %s %q: must be %s", ErrInvalidRequest, field, text.Truncate(value, maxName), rule)
}

// validName reports whether s has only characters of container IDs in the CNI specification, which
// include those of Kubernetes names. Such a name is safe in a path and a log line.
func validName(s string) bool {
	for i, r := range s {
		alnum := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("_.-", r)) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

// validIfName applies the rules of the kernel's dev_valid_name, and allows only ASCII.
func validIfName(s string) bool {
	if s == "" || len(s) > maxIfName || s == "." || s == ".." {
		return false
	}
	for _, r := range s {
		if r <= ' ' || r >= 0x7f || r == '/' || r == ':' {
			return false
		}
	}
	return true
}

// validPath reports whether p is an absolute and clean path.
func validPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= maxPath && !strings.ContainsFunc(p, func(r rune) bool {
		return r < ' ' || r == 0x7f
	})
}
