// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The hub places objects of a new kind after its definition was created.
func TestNewKind(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("kinds")
	h.cluster("kinds-east", v1alpha1.ClusterSpec{})
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "databases.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "databases", Singular: "database", Kind: "Database", ListKind: "DatabaseList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
	h.create(definition)
	database := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Database",
		"metadata": map[string]any{
			"namespace": ns, "name": "orders",
			"annotations": map[string]any{v1alpha1.ClustersAnnotation: "kinds-east"},
		},
	}}
	h.eventually("the kind to be served", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(h.client.Create(ctx, database.DeepCopy()))
	})
	h.expectWorks(kinds.Key{GroupKind: schema.GroupKind{Group: "example.com", Kind: "Database"}, Namespace: ns, Name: "orders"},
		map[string]int32{"kinds-east": 0})
}

// A Pod is placed in one cluster, and stays there.
func TestPodRunsOnce(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("pods")
	h.cluster("pods-east", v1alpha1.ClusterSpec{})
	h.cluster("pods-west", v1alpha1.ClusterSpec{})
	h.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}})
	h.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"},
		Spec:       v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"pods-east", "pods-west"}}},
	})
	h.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "once"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	})
	h.expectWorks(kinds.Key{GroupKind: schema.GroupKind{Kind: "Pod"}, Namespace: ns, Name: "once"}, map[string]int32{"pods-east": 0})
}

// Only the agent of an accepted cluster gets a certificate, for its own name.
func TestCertificates(t *testing.T) {
	h := newTestHub(t)
	env := apitest.Start(t)
	h.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "certs-in"}, Spec: v1alpha1.ClusterSpec{Accepted: true}})
	waiting := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "certs-out"}}
	h.create(waiting)
	request := func(name, user string, groups ...string) *certificatesv1.CertificateSigningRequest {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{
			CommonName: v1alpha1.ClusterUserPrefix + name, Organization: []string{v1alpha1.ClusterGroup},
		}}, key)
		if err != nil {
			t.Fatal(err)
		}
		who := apitest.Identity{UserName: user, Groups: append(groups, "system:authenticated", "system:masters")}
		r := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "certs-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeAPIServerClientSignerName,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			},
		}
		if err := env.As(t, who).Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	approved := func(r *certificatesv1.CertificateSigningRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := h.client.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
				return err
			}
			if len(r.Status.Conditions) == 0 || r.Status.Conditions[0].Type != certificatesv1.CertificateApproved ||
				r.Status.Conditions[0].Reason != v1alpha1.ReasonClusterAccepted {
				return fmt.Errorf("%w: %+v", errNotYet, r.Status)
			}
			return nil
		}
	}
	stranger := request("certs-in", "mallory", v1alpha1.BootstrapGroupPrefix+"certs-out")
	late := request("certs-out", "system:bootstrap:abcdef", v1alpha1.BootstrapGroupPrefix+"certs-out")
	h.eventually("the token's request", approved(request("certs-in", "system:bootstrap:abcdef", v1alpha1.BootstrapGroupPrefix+"certs-in")))
	h.eventually("the rotation", approved(request("certs-in", v1alpha1.ClusterUserPrefix+"certs-in")))
	if err := approved(late)(t.Context()); err == nil {
		t.Error("approved for a cluster that is not accepted")
	}
	accept := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"accepted":true}}`))
	if err := h.client.Patch(t.Context(), waiting, accept); err != nil {
		t.Fatal(err)
	}
	h.eventually("the request of the cluster after it was accepted", approved(late))
	if err := approved(stranger)(t.Context()); err == nil {
		t.Error("approved with another cluster's join token")
	}
}
