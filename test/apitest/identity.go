// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"k8s.io/client-go/rest"
)

// Identity is who makes a request: user, groups, and the extra claims of a token.
type Identity = rest.ImpersonationConfig

// Tenant is a user without any rights of its own, in the group "tenants".
func Tenant(name string) Identity {
	return Identity{UserName: name, Groups: []string{"tenants", "system:authenticated"}}
}

// NodeDaemon is the node daemon's service account as its token on that node shows it,
// with the claim that names the node (KEP-4193).
func NodeDaemon(node string) Identity {
	const namespace, account = "patchbay-system", "patchbayd"
	return Identity{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
}

// Controller is the account of patchbay-controller.
func Controller() Identity {
	const namespace = "patchbay-system"
	return Identity{
		UserName: "system:serviceaccount:" + namespace + ":patchbay-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}
