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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// certificateApprover approves the certificate requests of accepted clusters' agents. It ignores
// other requests, and leaves those of clusters that are not accepted pending.
type certificateApprover struct {
	cached client.Reader
	direct client.Client
}

// setup adds the controller of certificate requests to a manager.
func (c *certificateApprover) setup(m manager.Manager) error {
	return builder.ControllerManagedBy(m).Named("certificates").
		WithOptions(controllerOptions()).
		For(&certificatesv1.CertificateSigningRequest{}).
		Watches(&v1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(c.pending)).
		Complete(c)
}

// pending returns the pending requests when a Cluster is accepted.
func (c *certificateApprover) pending(ctx context.Context, o client.Object) []reconcile.Request {
	cluster, ok := o.(*v1alpha1.Cluster)
	if !ok || !cluster.Spec.Accepted {
		return nil
	}
	var list certificatesv1.CertificateSigningRequestList
	if c.cached.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return nil // they are reconciled when they change
	}
	var found []reconcile.Request
	for i := range list.Items {
		if len(list.Items[i].Status.Conditions) == 0 {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return found
}

// Reconcile approves a pending request of an accepted cluster's agent.
func (c *certificateApprover) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r := &certificatesv1.CertificateSigningRequest{}
	if err := c.cached.Get(ctx, req.NamespacedName, r); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(r.Status.Conditions) > 0 {
		return reconcile.Result{}, nil
	}
	name, ok := requestingCluster(&r.Spec)
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
		Reason: v1alpha1.ReasonClusterAccepted, Message: "Cluster " + name + " is accepted",
	})
	if err := c.direct.SubResource("approval").Update(ctx, next); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("approve certificate of %s: %w", name, err)
	}
	return reconcile.Result{}, nil
}

// requestingCluster returns the cluster whose agent makes a request, and whether the request is one
// that the hub may approve: a client certificate for that agent alone, requested with the cluster's
// join token or with the certificate that it renews.
func requestingCluster(s *certificatesv1.CertificateSigningRequestSpec) (string, bool) {
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
	name, isAgent := strings.CutPrefix(csr.Subject.CommonName, v1alpha1.ClusterUserPrefix)
	if !isAgent || name == "" || !slices.Equal(csr.Subject.Organization, []string{v1alpha1.ClusterGroup}) ||
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
	renews := s.Username == csr.Subject.CommonName
	return name, renews || slices.Contains(s.Groups, v1alpha1.BootstrapGroupPrefix+name)
}
