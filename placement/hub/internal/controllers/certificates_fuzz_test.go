// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// seedRequest makes a certificate request.
func seedRequest(f *testing.F, r x509.CertificateRequest) []byte {
	f.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &r, key)
	if err != nil {
		f.Fatal(err)
	}
	return der
}

// A holder of a join token, or an agent, gets a certificate only for its own cluster, in the agents'
// group and no other.
func FuzzCertificateRequest(f *testing.F) {
	east := pkix.Name{CommonName: v1alpha1.ClusterUserPrefix + "east", Organization: []string{v1alpha1.ClusterGroup}}
	masters := east
	masters.Organization = []string{v1alpha1.ClusterGroup, "system:masters"}
	twice := east
	twice.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "admin"}}
	for _, r := range []x509.CertificateRequest{
		{Subject: east}, {Subject: masters}, {Subject: twice}, {},
		{Subject: east, DNSNames: []string{"hub"}}, {Subject: east, IPAddresses: []net.IP{{127, 0, 0, 1}}},
	} {
		der := seedRequest(f, r)
		for _, user := range []string{v1alpha1.ClusterUserPrefix + "east", v1alpha1.ClusterUserPrefix + "west", "system:bootstrap:abcdef"} {
			f.Add(der, user, v1alpha1.BootstrapGroupPrefix+"east", "client auth")
		}
	}
	f.Add([]byte("-"), "", "", "server auth")
	f.Fuzz(func(t *testing.T, der []byte, user, group, usage string) {
		spec := &certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Username: user, Groups: []string{group},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:  []certificatesv1.KeyUsage{certificatesv1.KeyUsage(usage)},
		}
		name, ok := requestingCluster(spec)
		if !ok {
			return
		}
		if user != v1alpha1.ClusterUserPrefix+name && group != v1alpha1.BootstrapGroupPrefix+name {
			t.Errorf("user %q of group %q gets a certificate of cluster %q", user, group, name)
		}
		// What the signer copies from the request.
		csr, err := x509.ParseCertificateRequest(der)
		if err != nil {
			t.Fatal(err)
		}
		signed := csr.Subject.ToRDNSequence()
		var subject pkix.Name
		subject.FillFromRDNSequence(&signed)
		if subject.CommonName != v1alpha1.ClusterUserPrefix+name || len(subject.Organization) != 1 || subject.Organization[0] != v1alpha1.ClusterGroup {
			t.Errorf("a certificate of %s for cluster %q", subject, name)
		}
		if usage != "client auth" && usage != "digital signature" && usage != "key encipherment" {
			t.Errorf("a certificate for %q", usage)
		}
	})
}
