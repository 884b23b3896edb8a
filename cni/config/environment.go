// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

const (
	// maxID is the longest container ID in bytes; runtimes use 64.
	maxID = 253
	// maxIfName is the kernel's IFNAMSIZ without the final zero.
	maxIfName = 15
	// maxPath is the kernel's PATH_MAX.
	maxPath = 4096
)

// requirements are the variables that a command requires (CNI 1.1, section 2). DEL requires neither
// the namespace nor the arguments: the daemon has a record.
type requirements struct{ container, netns, args bool }

func requirementsOf(command string) (requirements, bool) {
	switch command {
	case "ADD", "CHECK":
		return requirements{container: true, netns: true, args: true}, true
	case "DEL":
		return requirements{container: true}, true
	case "GC", "STATUS":
		return requirements{}, true
	}
	return requirements{}, false
}

// ValidateRequest validates a request's command and the variables that it requires. Both the plugin
// and the daemon call it, as other programs of root can open the daemon's socket.
func ValidateRequest(req *wire.Request) error {
	n, ok := requirementsOf(req.Command)
	if !ok {
		return wire.Errorf(wire.CodeEnv, "CNI_COMMAND: %q must be ADD, DEL, CHECK, GC, STATUS or VERSION", truncate(req.Command))
	}
	if n.container {
		if err := checkContainer(req); err != nil {
			return err
		}
	}
	if n.netns {
		if err := checkNetns(req); err != nil {
			return err
		}
	}
	if n.args {
		_, err := ParseArgs(req.Args)
		return err
	}
	return nil
}

func checkContainer(req *wire.Request) error {
	if req.ContainerID == "" {
		return wire.Errorf(wire.CodeEnv, "CNI_CONTAINERID must be set: %s requires the sandbox", req.Command)
	}
	if !isValidName(req.ContainerID) || len(req.ContainerID) > maxID {
		return wire.Errorf(wire.CodeEnv,
			"CNI_CONTAINERID: %q must be at most %d letters, digits, '_', '.' or '-' and start with a letter or digit",
			truncate(req.ContainerID), maxID)
	}
	return checkIfName(req.IfName)
}

// checkIfName applies the kernel's rule (dev_valid_name), and rejects characters that are not
// printable.
func checkIfName(name string) error {
	if name == "" {
		return wire.Errorf(wire.CodeEnv, "CNI_IFNAME must be set")
	}
	if len(name) > maxIfName {
		return wire.Errorf(wire.CodeEnv, "CNI_IFNAME: %q has %d bytes: must have at most %d", truncate(name), len(name), maxIfName)
	}
	invalid := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' }
	if name == "." || name == ".." || strings.ContainsFunc(name, invalid) {
		return wire.Errorf(wire.CodeEnv, "CNI_IFNAME: %q must be an interface name: without '/', ':' and white space, and not '.' or '..'", name)
	}
	return nil
}

func checkNetns(req *wire.Request) error {
	path := req.Netns
	if path == "" {
		return wire.Errorf(wire.CodeEnv, "CNI_NETNS must be set: %s requires the path of the network namespace", req.Command)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) || len(path) > maxPath {
		return wire.Errorf(wire.CodeEnv, "CNI_NETNS: %q must be an absolute path without .. or //", truncate(path))
	}
	return nil
}

// isValidName reports whether s is valid as a network name or a container ID by the specification: a
// letter or digit, then letters, digits, '_', '.' and '-'. It is safe in a file name.
func isValidName(s string) bool {
	for i, r := range s {
		alnum := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("_.-", r)) {
			return false
		}
	}
	return s != ""
}
