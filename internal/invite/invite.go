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

// Invitation is to one cluster, to join a hub.
type Invitation struct {
	// Cluster is its name at the hub.
	Cluster string
	// Hub is the address that the cluster reaches the hub by.
	Hub string
	// CA is the hub's authority, as PEM; empty for one that every machine knows.
	CA []byte
	// ExpiresAt is when the token expires.
	ExpiresAt time.Time
}

// Issue makes the token at the hub and prints what to run next.
func (i Invitation) Issue(ctx context.Context, c client.Client, owner string, out io.Writer) error {
	secret, token := i.bootstrapToken()
	if err := c.Create(ctx, secret, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("create join token of %s: %w", i.Cluster, err)
	}
	return i.printInstructions(out, token)
}

// bootstrapToken is a bootstrap token that can be used for nothing but to join as one cluster.
// Id and secret have 30 and 80 random bits.
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

// printInstructions says what to run, in lines that can be pasted.
func (i Invitation) printInstructions(out io.Writer, token string) error {
	ca := ""
	if len(i.CA) > 0 {
		ca = " --ca=" + base64.StdEncoding.EncodeToString(i.CA)
	}
	_, err := fmt.Fprintf(out, "# With the kubeconfig of the cluster %[1]s, before %[2]s:\n"+
		"kubectl patchbay cluster join %[1]s --hub=%[3]s --join-token=%[4]s%[5]s\n\n"+
		"# With that of the hub, once it may join:\nkubectl patchbay cluster accept %[1]s\n",
		i.Cluster, i.ExpiresAt.UTC().Format(time.RFC3339), i.Hub, token, ca)
	return err
}

// maxClusterNameLength leaves room for "cluster-" in the name of a namespace.
const maxClusterNameLength = validation.DNS1123LabelMaxLength - len(v1alpha1.ClusterNamespacePrefix)

// ValidateClusterName refuses what no Cluster can be named.
func ValidateClusterName(name string) error {
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 || len(name) > maxClusterNameLength {
		return fmt.Errorf("%q is no name of a Cluster: want at most %d lower case letters, digits and -: %s",
			name, maxClusterNameLength, strings.Join(wrong, "; "))
	}
	return nil
}
