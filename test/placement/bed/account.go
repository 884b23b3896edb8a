// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// tokenLife is longer than any test.
const tokenLife = 24 * time.Hour

// AccountConfig is how a service account reaches this API server: with a token of its
// own, and the rights that it was given.
func (p *Plane) AccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	seconds := int64(tokenLife.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := p.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("make token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(p.Config)
	config.BearerToken = request.Status.Token
	return config, nil
}

// AccountKubeconfig writes a kubeconfig for a service account and returns its path.
func (p *Plane) AccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	config, err := p.AccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(p.dir, name+"-")
	if err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	file := filepath.Join(dir, "kubeconfig")
	err = clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"this": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: config.BearerToken}},
		Contexts:       map[string]*api.Context{"this": {Cluster: "this", AuthInfo: name}},
		CurrentContext: "this",
	}, file)
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return file, nil
}
