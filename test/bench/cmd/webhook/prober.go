// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// prober calls the webhook of Pods as the API server does. The histograms of API server and controller
// are too coarse for a percentile.
type prober struct {
	url    string
	client *http.Client
}

// newProber returns a prober for the webhook at an address.
func newProber(c *admissionregv1.ValidatingWebhookConfiguration, address string) (*prober, error) {
	for i := range c.Webhooks {
		hook := &c.Webhooks[i]
		if hook.Name != podWebhook {
			continue
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(hook.ClientConfig.CABundle) || hook.ClientConfig.Service == nil || hook.ClientConfig.Service.Path == nil {
			return nil, fmt.Errorf("webhook %s: must have a certificate authority and a path", podWebhook)
		}
		transport := &http.Transport{
			MaxIdleConnsPerHost: 25, // and HTTP/1.1, as client-go's transport for webhooks
			TLSClientConfig:     &tls.Config{RootCAs: roots, ServerName: serviceName + "." + scene.Namespace + ".svc", MinVersion: tls.VersionTLS13},
		}
		return &prober{url: "https://" + address + *hook.ClientConfig.Service.Path + "?timeout=3s", client: &http.Client{Transport: transport}}, nil
	}
	return nil, fmt.Errorf("webhook %s: not found in the configuration", podWebhook)
}

var errNotAdmitted = errors.New("the webhook does not admit a good Pod")

// call asks the webhook about a new Pod, which it must admit.
func (p *prober) call(ctx context.Context, pod *corev1.Pod) error {
	body, err := review(pod)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call the webhook: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("call the webhook: %w", err)
	}
	defer res.Body.Close()
	var answer admissionv1.AdmissionReview
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read the webhook's answer: %s: %w", res.Status, err)
	}
	if answer.Response == nil || !answer.Response.Allowed || len(answer.Response.Warnings) > 0 {
		return fmt.Errorf("%w: got %s %+v", errNotAdmitted, res.Status, answer.Response)
	}
	return nil
}

// review returns what the API server sends for a new Pod.
func review(pod *corev1.Pod) ([]byte, error) {
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	object, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("encode Pod: %w", err)
	}
	kind, pods := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(pod.Name), Kind: kind, RequestKind: &kind, Resource: pods, RequestResource: &pods,
			Namespace: pod.Namespace, Name: pod.Name, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
		},
	})
}
