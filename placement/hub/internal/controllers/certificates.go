// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// certificates approves what accepted clusters' agents request. What is not ours is
// left to others; what is ours and not accepted waits.
type certificates struct{ *hub }

// addCertificates makes a manager look after certificate requests.
func (h *hub) addCertificates(m manager.Manager) error {
	c := &certificates{h}
	return builder.ControllerManagedBy(m).Named("certificates").
		WithOptions(controller.Options{RateLimiter: retries[reconcile.Request]()}).
		For(&certificatesv1.CertificateSigningRequest{}).
		Watches(&v1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(c.waiting)).
		Complete(c)
}

// waiting are the requests that wait for somebody to accept a cluster.
func (c *certificates) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	cluster, ok := o.(*v1alpha1.Cluster)
	if !ok || !cluster.Spec.Accepted {
		return nil
	}
	var list certificatesv1.CertificateSigningRequestList
	if c.cached.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return nil // they are looked at when they are next seen
	}
	var found []reconcile.Request
	for i := range list.Items {
		if len(list.Items[i].Status.Conditions) == 0 {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return found
}

// Reconcile approves one request if it is an accepted cluster's.
func (c *certificates) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r := &certificatesv1.CertificateSigningRequest{}
	if err := c.cached.Get(ctx, req.NamespacedName, r); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(r.Status.Conditions) > 0 {
		return reconcile.Result{}, nil
	}
	name, ok := clusterAsking(&r.Spec)
	if !ok {
		return reconcile.Result{}, nil
	}
	cluster := &v1alpha1.Cluster{}
	if err := c.direct.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.Spec.Accepted || cluster.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	next := r.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "ClusterAccepted", Message: "Cluster " + name + " is accepted",
	})
	if err := c.direct.SubResource("approval").Update(ctx, next); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("approve certificate of %s: %w", name, err)
	}
	return reconcile.Result{}, nil
}

// clusterAsking is the cluster that a request is from, if it is one that we approve.
func clusterAsking(s *certificatesv1.CertificateSigningRequestSpec) (string, bool) {
	if s.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return "", false
	}
	block, _ := pem.Decode(s.Request)
	if block == nil {
		return "", false
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		return "", false
	}
	name, ours := strings.CutPrefix(csr.Subject.CommonName, v1alpha1.ClusterUserPrefix)
	if !ours || name == "" || !slices.Equal(csr.Subject.Organization, []string{v1alpha1.ClusterGroup}) ||
		len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.EmailAddresses)+len(csr.URIs) > 0 {
		return "", false
	}
	for _, u := range s.Usages {
		switch u {
		case certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return "", false
		}
	}
	own := s.Username == csr.Subject.CommonName
	return name, own || slices.Contains(s.Groups, v1alpha1.BootstrapGroupPrefix+name)
}
