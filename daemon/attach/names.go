// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Lengths of an endpoint's name in bytes: 57 in all, so that it also fits where
// a DNS label is wanted (RFC 1123: 63).
const (
	endpointPod  = 40
	endpointHash = 8
)

// endpointName names the DanmEp of one interface: "<Pod>-<hash of sandbox and
// interface>". A repeated or replayed ADD finds the same object by it, and a
// Pod's next sandbox does not. The result is a DNS subdomain (RFC 1123), as a
// Pod's name is.
func endpointName(pod, containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "\x00" + ifName))
	if len(pod) > endpointPod {
		pod = pod[:endpointPod]
	}
	return strings.TrimRight(pod, "-.") + "-" + hex.EncodeToString(sum[:endpointHash])
}

// foreign returns the labels without those of our own domains: a user must not
// be able to label a DanmEp as one of our programs would.
func foreign(labels map[string]string) map[string]string {
	kept := make(map[string]string, len(labels))
	for key, value := range labels {
		if domain, _, prefixed := strings.Cut(key, "/"); !prefixed || !ours(domain) {
			kept[key] = value
		}
	}
	return kept
}

// ours reports whether a label's prefix is one of our domains or below one.
func ours(domain string) bool {
	for _, d := range []string{"danm.io", "danm.k8s.io", "patchbay.io"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return true
		}
	}
	return false
}
