// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

const (
	// maxID bounds a container ID; runtimes use 64 bytes.
	maxID = 253
	// maxIfName is the kernel's IFNAMSIZ without the closing zero.
	maxIfName = 15
	// maxPath is the kernel's PATH_MAX.
	maxPath = 4096
)

// requirements are the variables that a command requires (CNI 1.1, section 2). DEL does
// without the namespace and the arguments: it works from the daemon's records.
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

// ValidateRequest holds the rules for the command of a request and the variables that it
// needs. The plugin and the daemon both apply it: the socket is root's, but not
// only the plugin can open it.
func ValidateRequest(req *wire.Request) error {
	n, ok := requirementsOf(req.Command)
	if !ok {
		return wire.Errorf(wire.CodeEnv, "CNI_COMMAND: %q is not ADD, DEL, CHECK, GC, STATUS or VERSION", truncate(req.Command))
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
		return wire.Errorf(wire.CodeEnv, "CNI_CONTAINERID is missing: %s needs the sandbox", req.Command)
	}
	if !ValidName(req.ContainerID) || len(req.ContainerID) > maxID {
		return wire.Errorf(wire.CodeEnv,
			"CNI_CONTAINERID: %q must be at most %d letters, digits, '_', '.' or '-' and start with a letter or digit",
			truncate(req.ContainerID), maxID)
	}
	return checkIfName(req.IfName)
}

// checkIfName is the kernel's own rule (dev_valid_name) without characters that
// no terminal shows.
func checkIfName(name string) error {
	if name == "" {
		return wire.Errorf(wire.CodeEnv, "CNI_IFNAME is missing")
	}
	if len(name) > maxIfName {
		return wire.Errorf(wire.CodeEnv, "CNI_IFNAME: %q has %d bytes, at most %d fit an interface", truncate(name), len(name), maxIfName)
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' }
	if name == "." || name == ".." || strings.ContainsFunc(name, odd) {
		return wire.Errorf(wire.CodeEnv, "CNI_IFNAME: %q is not a name for an interface: no '/', ':', white space, '.' or '..'", name)
	}
	return nil
}

func checkNetns(req *wire.Request) error {
	path := req.Netns
	if path == "" {
		return wire.Errorf(wire.CodeEnv, "CNI_NETNS is missing: %s needs the path of the network namespace", req.Command)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) || len(path) > maxPath {
		return wire.Errorf(wire.CodeEnv, "CNI_NETNS: %q must be an absolute path without .. or //", truncate(path))
	}
	return nil
}

// ValidName reports whether s is a network name or a container ID by the
// specification: a letter or digit, then letters, digits, '_', '.', '-'. Such a
// name is safe as part of a file name.
func ValidName(s string) bool {
	for i, r := range s {
		alnum := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("_.-", r)) {
			return false
		}
	}
	return s != ""
}
