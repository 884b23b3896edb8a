// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Invitation invites one cluster to join a hub.
type Invitation struct {
	// Cluster is the name of the Cluster at the hub.
	Cluster string
	// Hub is the address at which the cluster reaches the hub.
	Hub string
	// CA is the hub's certificate authority as PEM; empty for a public one.
	CA []byte
	// ExpiresAt is when the token expires.
	ExpiresAt time.Time
}

// Issue creates the token at the hub and prints the next commands.
func (i Invitation) Issue(ctx context.Context, c client.Client, owner string, out io.Writer) error {
	secret, token := i.bootstrapToken()
	if err := c.Create(ctx, secret, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("create join token of %s: %w", i.Cluster, err)
	}
	return i.printInstructions(out, token)
}

// bootstrapToken returns a bootstrap token, with its Secret, that allows only to join as one cluster. Its ID has
// 30 random bits, and its secret 80.
func (i Invitation) bootstrapToken() (*corev1.Secret, string) {
	random := strings.ToLower(rand.Text())
	id, key := random[:6], random[6:22]
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id,
			Labels: map[string]string{v1alpha1.JoinClusterLabel: i.Cluster},
		},
		Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": key, "expiration": i.ExpiresAt.UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true", "auth-extra-groups": v1alpha1.BootstrapGroupPrefix + i.Cluster,
			"description": "patchbay: join of the cluster " + i.Cluster,
		},
	}, id + "." + key
}

// printInstructions prints commands that the user can paste.
func (i Invitation) printInstructions(out io.Writer, token string) error {
	ca := ""
	if len(i.CA) > 0 {
		ca = " --ca=" + base64.StdEncoding.EncodeToString(i.CA)
	}
	_, err := fmt.Fprintf(out, "# With the kubeconfig of the cluster %[1]s, before %[2]s:\n"+
		"kubectl patchbay cluster join %[1]s --hub=%[3]s --join-token=%[4]s%[5]s\n\n"+
		"# With the kubeconfig of the hub, to accept the cluster:\nkubectl patchbay cluster accept %[1]s\n",
		i.Cluster, i.ExpiresAt.UTC().Format(time.RFC3339), i.Hub, token, ca)
	return err
}

// maxClusterNameLength leaves room for the prefix "cluster-" of a namespace.
const maxClusterNameLength = validation.DNS1123LabelMaxLength - len(v1alpha1.ClusterNamespacePrefix)

// ValidateClusterName returns an error for an invalid name of a Cluster.
func ValidateClusterName(name string) error {
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 || len(name) > maxClusterNameLength {
		return fmt.Errorf("%q must be the name of a Cluster, at most %d lower case letters, digits and -: %s",
			name, maxClusterNameLength, strings.Join(wrong, "; "))
	}
	return nil
}
