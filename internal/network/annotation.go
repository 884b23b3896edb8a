// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strict "sigs.k8s.io/json"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// InterfaceRequest is the request for one interface in a Pod's annotation.
type InterfaceRequest struct {
	// Kind of the network: ClusterNetwork, TenantNetwork or DanmNet.
	Kind string
	// Network is the object's name; its namespace is the Pod's.
	Network string
	// V4 and V6 are the requested addresses.
	V4, V6 AddressRequest
	// DeclinesAddress is true if ip or ip6 is "none", which says that a missing address is intended.
	DeclinesAddress bool
	// Proutes and Proutes6 are policy routes, ordered by destination.
	Proutes, Proutes6 []Route
}

// Ref returns the network for a Pod in the namespace. A request cannot name a network of another
// namespace.
func (r InterfaceRequest) Ref(namespace string) Ref {
	if r.Kind == v1.KindClusterNetwork {
		namespace = ""
	}
	return Ref{Kind: r.Kind, Namespace: namespace, Name: r.Network}
}

// referenceKeys returns the keys of an entry that name a network, each with its kind.
func referenceKeys() []struct{ key, kind string } {
	return []struct{ key, kind string }{
		{"network", v1.KindDanmNet}, {"tenantNetwork", v1.KindTenantNetwork}, {"clusterNetwork", v1.KindClusterNetwork},
	}
}

// ReferenceKey returns the key of the annotation that names a network of this kind.
func ReferenceKey(kind string) string {
	for _, r := range referenceKeys() {
		if r.kind == kind {
			return r.key
		}
	}
	return ""
}

// OtherKinds returns the references to networks of the same name and of another kind that Pods of the
// namespace can make.
func OtherKinds(ref Ref, namespace string) []Ref {
	var others []Ref
	for _, r := range referenceKeys() {
		if r.kind != ref.Kind {
			others = append(others, InterfaceRequest{Kind: r.kind, Network: ref.Name}.Ref(namespace))
		}
	}
	return others
}

// SuggestKind returns what the user of a network that does not exist should write, if a network of that
// name exists in another kind and allows the namespace; "" otherwise. NetworkOf returns nil for a network
// that does not exist.
func SuggestKind(ref Ref, namespace string, networkOf func(Ref) *Network) string {
	for _, other := range OtherKinds(ref, namespace) {
		if n := networkOf(other); n != nil && !n.Deleting && n.Allows(namespace) {
			return fmt.Sprintf("%s exists: use %s", other, ReferenceKey(other.Kind))
		}
	}
	return ""
}

// AddressRequest is the request for an address of one family. The zero value requests none.
type AddressRequest struct {
	// Dynamic requests any free address of the pool.
	Dynamic bool
	// Static is the requested address; not valid with Dynamic.
	Static netip.Addr
}

// None reports whether no address is requested.
func (a AddressRequest) None() bool { return !a.Dynamic && !a.Static.IsValid() }

// DefaultRefs returns the candidates for the network of a Pod without an annotation. The Pod gets the
// first that exists.
func DefaultRefs(namespace string) []Ref {
	return []Ref{
		{Kind: v1.KindDanmNet, Namespace: namespace, Name: v1.DefaultNetworkName},
		{Kind: v1.KindTenantNetwork, Namespace: namespace, Name: v1.DefaultNetworkName},
		{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName},
	}
}

// DefaultRequest returns the request of a Pod without an annotation: an address of each family of the
// default network.
func DefaultRequest(n *Network) InterfaceRequest {
	return InterfaceRequest{
		Kind: n.Ref.Kind, Network: n.Ref.Name,
		V4: AddressRequest{Dynamic: n.V4 != nil},
		V6: AddressRequest{Dynamic: n.V6 != nil},
	}
}

// InterfaceAnnotations returns the annotations that request interfaces, the newer first.
func InterfaceAnnotations() []string {
	return []string{v1.InterfacesAnnotation, v1.LegacyInterfacesAnnotation}
}

const (
	// maxAnnotation bounds the work on one annotation, in bytes. The API server allows 256 KiB for
	// all annotations together.
	maxAnnotation = 64 << 10
	// maxInterfaces is far more than a Pod can use.
	maxInterfaces = 256
)

// ParseInterfaces parses the annotation danm.io/interfaces of a Pod or, by its older name,
// danm.k8s.io/interfaces. It returns nothing for a Pod without them, or with an empty list: that Pod
// gets the default network. The error is an *InvalidError with the index and field of each invalid
// entry, and the byte offset for malformed JSON.
func ParseInterfaces(annotations map[string]string) ([]InterfaceRequest, error) {
	_, requests, err := parseInterfaces(field.NewPath("metadata", "annotations"), annotations)
	return requests, err
}

// parseInterfaces is ParseInterfaces for annotations at a path. It also returns the annotation's key.
func parseInterfaces(path *field.Path, annotations map[string]string) (key string, _ []InterfaceRequest, _ error) {
	var f faults
	key, value, ok := interfacesAnnotation(&f, path, annotations)
	if !ok {
		return "", nil, f.err("")
	}
	path = path.Key(key)
	entries := splitEntries(&f, path, value)
	requests := make([]InterfaceRequest, 0, len(entries))
	for i, raw := range entries {
		requests = append(requests, parseEntry(&f, path.Index(i), raw))
	}
	if err := f.err(""); err != nil {
		return key, nil, err
	}
	return key, requests, nil
}

// interfacesAnnotation returns the one of the two annotations that is set.
func interfacesAnnotation(f *faults, path *field.Path, annotations map[string]string) (key, value string, ok bool) {
	value, ok = annotations[v1.InterfacesAnnotation]
	older, both := annotations[v1.LegacyInterfacesAnnotation]
	switch {
	case ok && both && value != older:
		f.forbidden(path.Key(v1.LegacyInterfacesAnnotation),
			fmt.Sprintf("must not differ from %s, which replaces it: leave this one out", v1.InterfacesAnnotation))
		return "", "", false
	case ok:
		return v1.InterfacesAnnotation, value, true
	case both:
		return v1.LegacyInterfacesAnnotation, older, true
	}
	return "", "", false
}

// splitEntries splits a JSON list into its entries, so that each fault can have the entry's index.
func splitEntries(f *faults, path *field.Path, value string) []json.RawMessage {
	if len(value) > maxAnnotation {
		f.list = append(f.list, field.TooLong(path, "", maxAnnotation))
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(value))
	var entries []json.RawMessage
	if err := dec.Decode(&entries); err != nil {
		f.invalid(path, excerpt(value, offsetOf(err, len(value))), listFault(err, len(value)))
		return nil
	}
	end := int(dec.InputOffset())
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		f.invalid(path, excerpt(value, end), fmt.Sprintf("must end with the JSON list, at byte %d: remove the rest", end))
		return nil
	}
	if entries == nil {
		f.invalid(path, "null", "must be a JSON list: use [] for the default network")
	}
	if len(entries) > maxInterfaces {
		f.list = append(f.list, field.TooMany(path, len(entries), maxInterfaces))
		return nil
	}
	return entries
}

// listFault is the rule that the error of encoding/json is about.
func listFault(err error, size int) string {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf(`must be a JSON list, such as [{"clusterNetwork": "storage", "ip": "dynamic"}]: got a JSON %s`, wrongType.Value)
	}
	return fmt.Sprintf("must be JSON: %v at byte %d", err, offsetOf(err, size))
}

// offsetOf returns the offset of the error in a text of size bytes.
func offsetOf(err error, size int) int {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset > 0 {
		return int(syntax.Offset) - 1
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return 0
	}
	return size // the text ends too early
}

// maxExcerpt is how many bytes of an annotation a message has.
const maxExcerpt = 40

// excerpt returns the part of value around a byte, with "…" where more of it is left out.
func excerpt(value string, at int) string {
	from, to := max(at-maxExcerpt/2, 0), min(at+maxExcerpt/2, len(value))
	part := strings.ToValidUTF8(value[from:to], "\ufffd")
	if from > 0 {
		part = "…" + part
	}
	if to < len(value) {
		part += "…"
	}
	return part
}

// entry is one interface in the annotation.
type entry struct {
	DanmNet        string            `json:"network"`
	TenantNetwork  string            `json:"tenantNetwork"`
	ClusterNetwork string            `json:"clusterNetwork"`
	IP             string            `json:"ip"`
	IP6            string            `json:"ip6"`
	Proutes        map[string]string `json:"proutes"`
	Proutes6       map[string]string `json:"proutes6"`
}

func parseEntry(f *faults, path *field.Path, raw json.RawMessage) InterfaceRequest {
	var e entry
	if !decodeEntry(f, path, raw, &e) {
		return InterfaceRequest{}
	}
	var r InterfaceRequest
	r.Kind, r.Network = parseReference(f, path, e)
	r.V4 = parseAddress(f, path.Child("ip"), ipv4(), e.IP)
	r.V6 = parseAddress(f, path.Child("ip6"), ipv6(), e.IP6)
	r.DeclinesAddress = e.IP == noAddress || e.IP6 == noAddress
	r.Proutes = parseRoutes(f, path.Child("proutes"), ipv4(), e.Proutes, nil)
	r.Proutes6 = parseRoutes(f, path.Child("proutes6"), ipv6(), e.Proutes6, nil)
	return r
}

// decodeEntry decodes a JSON object with case-sensitive keys. It adds faults for unknown and repeated
// keys and for values of the wrong type.
func decodeEntry(f *faults, path *field.Path, raw json.RawMessage, into any) bool {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		f.invalid(path, excerpt(string(trimmed), 0), `must be a JSON object, such as {"clusterNetwork": "storage"}`)
		return false
	}
	faults, err := strict.UnmarshalStrict(raw, into)
	if err != nil {
		at := 0
		if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrongType.Field != "" {
			path, at = path.Child(wrongType.Field), int(wrongType.Offset)
		}
		f.invalid(path, excerpt(string(raw), at), wrongTypeRule(err))
		return false
	}
	for _, fault := range faults {
		invalidKey(f, path, fault)
	}
	return len(faults) == 0
}

// entryKeys returns the keys of an entry.
func entryKeys() []string {
	return []string{"network", "tenantNetwork", "clusterNetwork", "ip", "ip6", "proutes", "proutes6"}
}

// invalidKey adds a fault for a key that is unknown or repeated. Only the value of proutes and proutes6 has
// keys of its own, and these are never unknown.
func invalidKey(f *faults, path *field.Path, err error) {
	fault, ok := errors.AsType[strict.FieldError](err)
	if !ok {
		f.invalid(path, "", err.Error())
		return
	}
	key := fault.FieldPath()
	outer, _, nested := strings.Cut(key, ".")
	if slices.Contains(entryKeys(), key) || nested && slices.Contains(entryKeys(), outer) {
		f.invalid(path, key, "must be set once, and is set twice: leave one out")
		return
	}
	rule := "must be one of the keys " + strings.Join(entryKeys(), ", ")
	if nearest := text.Nearest(key, entryKeys()); nearest != "" {
		rule += ": did you mean " + nearest + "?"
	}
	f.invalid(path, text.Truncate(key, maxExcerpt), rule)
}

func wrongTypeRule(err error) string {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		rule := fmt.Sprintf("must be a %s: got a JSON %s", wrongType.Type.Kind(), wrongType.Value)
		if wrongType.Field == "ip" || wrongType.Field == "ip6" {
			rule += `, not "dynamic", "none" or an address in quotes`
		}
		return rule
	}
	return err.Error()
}

// parseReference returns the one network that an entry names. An empty string is not a reference:
// DANM's clients write all three keys.
func parseReference(f *faults, path *field.Path, e entry) (kind, name string) {
	names := map[string]string{v1.KindDanmNet: e.DanmNet, v1.KindTenantNetwork: e.TenantNetwork, v1.KindClusterNetwork: e.ClusterNetwork}
	var key string
	for _, r := range referenceKeys() {
		if names[r.kind] == "" {
			continue
		}
		if kind != "" {
			f.forbidden(path.Child(r.key), "must not be set with "+key+" \""+name+"\", because an interface is in one network: leave one out")
			continue
		}
		key, kind, name = r.key, r.kind, names[r.kind]
	}
	if kind == "" {
		f.required(path, "must name a network: set clusterNetwork, tenantNetwork or network (a DanmNet)")
		return "", ""
	}
	for _, fault := range validation.NameIsDNSSubdomain(name, false) {
		f.invalid(path.Child(key), name, fault)
	}
	return kind, name
}

// noAddress as ip or ip6 requests no address.
const noAddress = "none"

// parseAddress parses "dynamic", "none", an empty text or an address. The mask of an address is
// ignored: the network's mask is used.
func parseAddress(f *faults, path *field.Path, ip ipVersion, value string) AddressRequest {
	switch value {
	case "", noAddress:
		return AddressRequest{}
	case "dynamic":
		return AddressRequest{Dynamic: true}
	}
	text, mask, masked := strings.Cut(value, "/")
	a, ok := ip.parseAddr(text)
	if _, maskOK := ip.parsePrefix(text + "/" + mask); !ok || masked && !maskOK {
		f.invalid(path, value, `must be "dynamic", "none" or `+ip.addrRule)
		return AddressRequest{}
	}
	return AddressRequest{Static: a}
}
