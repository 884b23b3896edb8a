// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scraper reads the metrics of programs as Prometheus does: over TLS, with the token of a
// ServiceAccount.
type Scraper struct {
	token  string
	client *http.Client
}

// Scraper returns one that has the ClusterRole patchbay-metrics-reader.
func (e *Env) Scraper(ctx context.Context) (*Scraper, error) {
	const namespace, name = "patchbay-system", "prometheus"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	for _, o := range []client.Object{account, binding} {
		if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, o)); err != nil {
			return nil, fmt.Errorf("create %T: %w", o, err)
		}
	}
	right := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  "system:serviceaccount:" + namespace + ":" + name,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	err := await(ctx, "the right to read metrics", func(ctx context.Context) error {
		review := right.DeepCopy()
		if err := e.Client.Create(ctx, review); err != nil {
			return fmt.Errorf("ask for rights: %w", err)
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%s may not get /metrics", review.Spec.User)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e.ScraperOf(ctx, account)
}

// ScraperOf returns one with the rights that a ServiceAccount has.
func (e *Env) ScraperOf(ctx context.Context, account *corev1.ServiceAccount) (*Scraper, error) {
	token := &authenticationv1.TokenRequest{}
	if err := e.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("make token of ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	// The programs' certificates are self-signed.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return &Scraper{token: token.Status.Token, client: &http.Client{Transport: transport}}, nil
}

// Anonymous returns a scraper without a token.
func (s *Scraper) Anonymous() *Scraper { return &Scraper{client: s.client} }

// Get reads a path at the address of a program.
func (s *Scraper) Get(ctx context.Context, address, path string) (text string, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return "", 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), res.StatusCode, err
}

// Metrics reads the metrics of the program at address.
func (s *Scraper) Metrics(ctx context.Context, address string) (string, error) {
	text, status, err := s.Get(ctx, address, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("read metrics: status %d: %s", status, text)
	}
	return text, err
}
