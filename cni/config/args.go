// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

// Args are the CNI_ARGS of Kubernetes' runtimes.
type Args struct {
	// PodNamespace, PodName and PodUID identify the Pod (K8S_POD_NAMESPACE, K8S_POD_NAME,
	// K8S_POD_UID). PodUID is empty with runtimes before containerd 1.6 and CRI-O 1.22.
	PodNamespace, PodName, PodUID string
	// SandboxID is K8S_POD_INFRA_CONTAINER_ID.
	SandboxID string
}

// maxArg is the longest value in bytes: a Pod's name has at most 253.
const maxArg = 253

// ParseArgs parses "KEY=value;KEY=value". By the specification's conventions an unknown key is an
// error unless IgnoreUnknown is true, which every Kubernetes runtime sets. An empty string is
// valid: DEL does not need the arguments.
func ParseArgs(s string) (Args, error) {
	var a Args
	var ignore bool
	var unknown []string
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(s, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return Args{}, wire.Errorf(wire.CodeEnv, "CNI_ARGS: %q must be KEY=value", truncate(pair))
		}
		if seen[key] {
			return Args{}, wire.Errorf(wire.CodeEnv, "CNI_ARGS: %s must be set once, and is set twice", truncate(key))
		}
		seen[key] = true
		var err error
		if key == "IgnoreUnknown" {
			ignore, err = parseBool(value)
		} else if field := a.field(key); field != nil {
			*field, err = value, checkArg(key, value)
		} else {
			unknown = append(unknown, key)
		}
		if err != nil {
			return Args{}, err
		}
	}
	if len(unknown) > 0 && !ignore {
		return Args{}, wire.Errorf(wire.CodeEnv, "CNI_ARGS: key %q must be one of %s, unless IgnoreUnknown=1 is set",
			truncate(slices.Min(unknown)), strings.Join(argKeys(), ", "))
	}
	return a, nil
}

// argKeys are the known keys, in the order of field.
func argKeys() []string {
	return []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID"}
}

// field returns the field for the value of a key, nil for an unknown key.
func (a *Args) field(key string) *string {
	i := slices.Index(argKeys(), key)
	if i < 0 {
		return nil
	}
	return []*string{&a.PodNamespace, &a.PodName, &a.PodUID, &a.SandboxID}[i]
}

// checkArg allows the characters of Kubernetes' names and UIDs only, so that requests and logs have
// no path separators and control characters.
func checkArg(key, value string) error {
	if value == "" || isValidName(value) && len(value) <= maxArg {
		return nil
	}
	return wire.Errorf(wire.CodeEnv, "CNI_ARGS: %s %q must be at most %d letters, digits, '_', '.' or '-'", key, truncate(value), maxArg)
}

func parseBool(value string) (bool, error) {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, wire.Errorf(wire.CodeEnv, "CNI_ARGS: IgnoreUnknown %q must be true or false", truncate(value))
	}
	return on, nil
}
