// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/tenant"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
)

// doubts are what was said of networks that nobody confirms, by token, so that it is
// not said every minute.
type doubts map[string]string

// adopt gives networks back their reservations, which a backup tool or another API
// server did not restore, where a netadmin asks for it. An assignment that nobody
// reserved may also be a forgery, of a time without admission.
func (s *sweeper) adopt(ctx context.Context, unreserved []tenant.Reservation) {
	if len(unreserved) == 0 {
		s.doubts = nil
		return
	}
	refused, err := s.desk.Adopt(ctx, s.claims(ctx, unreserved))
	if err != nil {
		s.log.Error(err, "Reserve again what TenantNetworks were assigned")
		return
	}
	said := doubts{}
	for _, r := range unreserved {
		why, ok := refused[r.Owner.Token]
		if !ok {
			continue
		}
		said[r.Owner.Token] = why.Error()
		if s.doubts[r.Owner.Token] != why.Error() {
			s.log.Error(why, doubt(why), "network", r.Owner.String(), "place", r.Place.String())
		}
	}
	s.doubts = said
}

// doubt says what to do about a network that nobody confirms.
func doubt(why error) string {
	if errors.Is(why, tenant.ErrTaken) {
		return "A TenantNetwork says that it was assigned what another one has: delete it"
	}
	return "A TenantNetwork says that it was assigned what nobody reserved for it, so no node believes it: " +
		"delete it, or after a restore annotate its TenantConfig with danm.io/take-over=true"
}

// claims adds the labels of the namespaces; a network whose namespace cannot be read is
// left for the next look.
func (s *sweeper) claims(ctx context.Context, unreserved []tenant.Reservation) []reserve.Claim {
	labels := map[string]map[string]string{}
	var claims []reserve.Claim
	for _, r := range unreserved {
		found, known := labels[r.Owner.Namespace]
		if !known {
			var err error
			if found, err = namespaceLabels(ctx, s.reader, r.Owner.Namespace); err != nil {
				s.log.Error(err, "Failed to adopt the reservations of a namespace")
				continue
			}
			labels[r.Owner.Namespace] = found
		}
		claims = append(claims, reserve.Claim{Reservation: r, NamespaceLabels: found})
	}
	return claims
}

// leftOut logs the TenantConfigs that nothing is given of.
func leftOut(log logr.Logger) func(string, error) {
	return func(config string, why error) {
		log.Error(why, "Nothing is assigned from a TenantConfig until it is mended", "tenantConfig", config)
	}
}
