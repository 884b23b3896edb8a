// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newTokenSecret is a bootstrap token that can be used for nothing but to join as one
// cluster. Id and secret have 30 and 80 random bits.
func newTokenSecret(cluster string, until time.Time) *corev1.Secret {
	random := strings.ToLower(rand.Text())
	id := random[:6]
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id,
			Labels: map[string]string{v1alpha1.JoinTokenLabel: cluster},
		},
		Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": random[6:22], "expiration": until.UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true", "auth-extra-groups": v1alpha1.BootstrapGroupPrefix + cluster,
			"description": "patchbay: join of the cluster " + cluster,
		},
	}
}

// printJoin prints what to run next.
func printJoin(out io.Writer, cluster, server string, secret *corev1.Secret, ca []byte) error {
	d := secret.StringData
	_, err := fmt.Fprintf(out, "# With the kubeconfig of the cluster %[1]s, before %[2]s:\n"+
		"kubectl patchbay cluster join %[1]s --hub=%[3]s --join-token=%[4]s.%[5]s%[6]s\n\n"+
		"# With that of the hub, once it may join:\nkubectl patchbay cluster accept %[1]s\n",
		cluster, d["expiration"], server, d["token-id"], d["token-secret"], caFlag(ca))
	return err
}

// caFlag is the flag with the authority, if there is one of its own.
func caFlag(ca []byte) string {
	if len(ca) == 0 {
		return ""
	}
	return " --ca=" + base64.StdEncoding.EncodeToString(ca)
}
