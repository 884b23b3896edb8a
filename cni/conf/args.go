// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

// Args is CNI_ARGS as Kubernetes' runtimes write it.
type Args struct {
	// PodNamespace, PodName and PodUID name the Pod (K8S_POD_NAMESPACE,
	// K8S_POD_NAME, K8S_POD_UID). A runtime older than containerd 1.6 or
	// CRI-O 1.22 gives no UID: it is empty then.
	PodNamespace, PodName, PodUID string
	// SandboxID is K8S_POD_INFRA_CONTAINER_ID.
	SandboxID string
}

// maxArg bounds a value: a Pod's name has at most 253 bytes.
const maxArg = 253

// ParseArgs reads "KEY=value;KEY=value". As in the specification's conventions
// an unknown key is an error, unless IgnoreUnknown is true, which every
// Kubernetes runtime sets. Nothing given is legal: DEL can do without.
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
			return Args{}, wire.Errorf(wire.CodeEnv, "CNI_ARGS: %q is not KEY=value", truncate(pair))
		}
		if seen[key] {
			return Args{}, wire.Errorf(wire.CodeEnv, "CNI_ARGS: %s is given twice", truncate(key))
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
		return Args{}, wire.Errorf(wire.CodeEnv, "CNI_ARGS: unknown key %q; known are %s, and IgnoreUnknown=1 allows others",
			truncate(slices.Min(unknown)), strings.Join(argKeys(), ", "))
	}
	return a, nil
}

// argKeys are the keys that field knows.
func argKeys() []string {
	return []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID"}
}

// field is where the value of a key goes, nil for an unknown one.
func (a *Args) field(key string) *string {
	i := slices.Index(argKeys(), key)
	if i < 0 {
		return nil
	}
	return []*string{&a.PodNamespace, &a.PodName, &a.PodUID, &a.SandboxID}[i]
}

// checkArg holds the character set of Kubernetes' names and UIDs, which keeps
// path separators and control characters out of requests and logs.
func checkArg(key, value string) error {
	if value == "" || ValidName(value) && len(value) <= maxArg {
		return nil
	}
	return wire.Errorf(wire.CodeEnv, "CNI_ARGS: %s %q: at most %d letters, digits, '_', '.' or '-'", key, truncate(value), maxArg)
}

func parseBool(value string) (bool, error) {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, wire.Errorf(wire.CodeEnv, "CNI_ARGS: IgnoreUnknown %q is neither true nor false", truncate(value))
	}
	return on, nil
}
