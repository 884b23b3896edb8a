// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// tokenStore keeps the token in a Secret, for an agent that starts while the hub is away
// or the join token has run out.
type tokenStore struct {
	secrets corev1client.SecretInterface
	name    string
}

// read returns the token; "" when there is none.
func (s tokenStore) read(ctx context.Context) (string, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get Secret %s: %w", s.name, err)
	}
	return string(secret.Data[corev1.ServiceAccountTokenKey]), nil
}

func (s tokenStore) write(ctx context.Context, token string) error {
	return put(ctx, s.secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)},
	})
}

// put makes a Secret be as it is here.
func put(ctx context.Context, secrets corev1client.SecretInterface, secret *corev1.Secret) error {
	_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", secret.Name, err)
	}
	return nil
}
