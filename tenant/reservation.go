// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/patchbay-cni/patchbay/network"
)

// ErrTaken says that another network has the place.
var ErrTaken = errors.New("place is taken")

// Owner is the TenantNetwork that has a place.
type Owner struct {
	// Namespace and Name of the TenantNetwork. The name ends in "*" when the API
	// server was to generate it: it did not say which at the time.
	Namespace, Name string
	// Token is in the network's annotation too. It alone tells owners apart.
	Token string
}

// String returns namespace/name.
func (o Owner) String() string { return o.Namespace + "/" + o.Name }

// Reservation says who has a place.
type Reservation struct {
	// Place is the part of the TenantConfig.
	Place network.Place
	// Owner has it.
	Owner Owner
}

// readable checks that the texts of a reservation are read as what they were made of.
func (r Reservation) readable() error {
	p, err := network.ParsePlace(r.Place.String())
	if err != nil {
		return err
	}
	o, err := parseOwner(r.Owner.text())
	if err != nil {
		return err
	}
	if p != r.Place || o != r.Owner {
		return fmt.Errorf("it would be read as %s for %s", p, o)
	}
	return nil
}

// text is what parseOwner reads.
func (o Owner) text() string { return o.String() + " " + o.Token }

var (
	ownerName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9*]([a-z0-9.*-]*[a-z0-9*])?$`)
	ownerToken = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// parseOwner reads "namespace/name token".
func parseOwner(text string) (Owner, error) {
	name, token, _ := strings.Cut(text, " ")
	if !ownerName.MatchString(name) || !ownerToken.MatchString(token) {
		return Owner{}, fmt.Errorf("parse owner %.100q: want namespace/name and a token of 16 hexadecimal digits", text)
	}
	namespace, name, _ := strings.Cut(name, "/")
	return Owner{Namespace: namespace, Name: name, Token: token}, nil
}
