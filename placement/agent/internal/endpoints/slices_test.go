// SPDX-License-Identifier: Apache-2.0

package endpoints_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/endpoints"
)

// refusingServer is an API server that refuses EndpointSlices with a port of the name "A_b", and deletions if it is
// told to.
type refusingServer struct {
	discoveryclient.EndpointSliceInterface
	refusesDeletions bool
	written, deleted []string
}

func (s *refusingServer) EndpointSlices(string) discoveryclient.EndpointSliceInterface { return s }

func (s *refusingServer) Create(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	if *slice.Ports[0].Name == "A_b" {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "EndpointSlice"}, slice.Name, nil)
	}
	s.written = append(s.written, slice.Endpoints[0].Addresses...)
	return slice, nil
}

func (s *refusingServer) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	if s.refusesDeletions {
		return apierrors.NewConflict(schema.GroupResource{Resource: "endpointslices"}, name, errors.New("changed"))
	}
	s.deleted = append(s.deleted, name)
	return nil
}

// One slice that the API server refuses must not keep the addresses of Pods that are gone in the others.
func TestWriteGoesOn(t *testing.T) {
	t.Parallel()
	s := endpoints.Service{Namespace: "shop", Name: "web", UID: "u"}
	group := func(port, address string) v1alpha1.TrafficEndpoints {
		return v1alpha1.TrafficEndpoints{Addresses: []string{address}, Ports: []v1alpha1.TrafficPort{{Name: port, Protocol: "TCP", Port: new(int32(80))}}}
	}
	desired := endpoints.Desired(s, []v1alpha1.TrafficEndpoints{group("A_b", "10.77.2.1"), group("http", "10.77.2.2"), group("metrics", "10.77.2.3")}, []string{"10.77.0.0/16"})
	own := []discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Name: "old-1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "old-2"}}}
	for name, tc := range map[string]struct {
		reason           string
		refusesDeletions bool
		needsUser        bool
	}{
		"Refused":  {reason: "Only a user can end it.", needsUser: true},
		"Conflict": {reason: "What may end by itself is tried again soon.", refusesDeletions: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &refusingServer{refusesDeletions: tc.refusesDeletions}
			err := endpoints.Write(t.Context(), server, s, desired, own)
			if !apierrors.IsInvalid(err) || endpoints.NeedsUser(err) != tc.needsUser {
				t.Errorf("%s: got %v, a user is needed: want %t", tc.reason, err, tc.needsUser)
			}
			if slices.Sort(server.written); fmt.Sprint(server.written) != "[10.77.2.2 10.77.2.3]" {
				t.Errorf("written: got %v, want the two that are valid", server.written)
			}
			if !tc.refusesDeletions && strings.Join(server.deleted, " ") != "old-1 old-2" {
				t.Errorf("deleted: got %v, want both old ones", server.deleted)
			}
			if tc.refusesDeletions && strings.Count(err.Error(), "delete EndpointSlice") != 2 {
				t.Errorf("got %v, want the errors of both deletions", err)
			}
		})
	}
	if err := endpoints.Write(t.Context(), &refusingServer{}, s, desired[:0], own); err != nil {
		t.Errorf("nothing is refused: got %v", err)
	}
}
