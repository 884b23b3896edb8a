// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"strings"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// NamingRules are the cases of names, which become links, files and executables on the host.
func NamingRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Least": {Reason: "Only the NetworkID is required.", Spec: `{NetworkID: a}`},
		"AllCharacters": {
			Reason: "Letters, digits, dot, dash and underscore inside a name are safe everywhere.",
			Spec:   `{NetworkID: a.B-c_9, NetworkType: My.plugin-2_x}`,
		},
		"LongestID": {Reason: "63 characters are allowed without a link.", Spec: `{NetworkID: ` + strings.Repeat("x", 63) + `}`},
		"TooLongID": {
			Reason: "64 characters are too many.", Spec: `{NetworkID: ` + strings.Repeat("x", 64) + `}`,
			Refused: []string{"spec.NetworkID", "63"},
		},
		"EmptyID": {Reason: "A link or a file needs a name.", Spec: `{NetworkID: ""}`, Refused: []string{"spec.NetworkID"}},
		"NoID":    {Reason: "The field is required.", Spec: `{NetworkID: null}`, Refused: []string{"spec.NetworkID"}},
		"PathInID": {
			Reason: "A NetworkID must not leave the folder of CNI configurations.", Spec: `{NetworkID: ../../etc/x}`,
			Refused: []string{"spec.NetworkID", "letters, digits"},
		},
		"DotsID":       {Reason: "The name of the parent folder is not a file name.", Spec: `{NetworkID: ..}`, Refused: []string{"spec.NetworkID"}},
		"LeadingDash":  {Reason: "A program would read a leading dash as an option.", Spec: `{NetworkID: -x}`, Refused: []string{"spec.NetworkID"}},
		"TrailingDot":  {Reason: "The last character must be a letter or digit.", Spec: `{NetworkID: x.}`, Refused: []string{"spec.NetworkID"}},
		"NewlineInID":  {Reason: "A dollar in a pattern may match before a newline.", Spec: `{NetworkID: "x\n"}`, Refused: []string{"spec.NetworkID"}},
		"UnicodeID":    {Reason: "Only ASCII characters are allowed.", Spec: `{NetworkID: nätz}`, Refused: []string{"spec.NetworkID"}},
		"EmptyType":    {Reason: "DANM's clients write empty strings, which mean ipvlan.", Spec: `{NetworkType: ""}`},
		"AnyCaseType":  {Reason: "The type is case-insensitive.", Spec: `{NetworkType: IPVlan}`},
		"DelegateType": {Reason: "Another type is the name of a CNI plugin.", Spec: `{NetworkType: flannel}`},
		"PathInType": {
			Reason: "The plugin is executed as root.", Spec: `{NetworkType: ../bin/sh}`,
			Refused: []string{"spec.NetworkType", "letters, digits"},
		},
		"TooLongForVLAN": {
			Reason: "The link's name NetworkID.vlan must fit into 15 bytes.", Spec: `{NetworkID: elevenchars, Options: {host_device: ens4, vlan: 5}}`,
			Refused: []string{"spec.NetworkID", "at most 10 characters"},
		},
		"TooLongForVXLAN": {
			Reason: "The link's name vx_NetworkID must fit into 15 bytes.", Spec: `{NetworkID: elevenchars, Options: {host_device: ens4, vxlan: 5}}`,
			Refused: []string{"spec.NetworkID", "at most 10 characters"},
		},
		"FitsVLAN":       {Reason: "10 characters and .4094 are 15 bytes.", Spec: `{NetworkID: tencharact, Options: {host_device: ens4, vlan: 4094}}`},
		"LongWithoutVNI": {Reason: "The NetworkID is not in the name of a link.", Spec: `{NetworkID: elevenchars, Options: {host_device: ens4}}`},
		"LongSRIOV": {
			Reason: "The VLAN of a virtual function needs no link.",
			Spec:   `{NetworkID: elevenchars, NetworkType: sriov, Options: {device_pool: a/b, vlan: 5}}`,
		},
		"Prefix":        {Reason: "14 characters leave room for an index of one digit.", Spec: `{Options: {container_prefix: abcdefghijklmn}}`},
		"EmptyPrefix":   {Reason: "Empty means not set.", Spec: `{Options: {container_prefix: ""}}`},
		"LongPrefix":    {Reason: "15 characters leave no room for an index.", Spec: `{Options: {container_prefix: abcdefghijklmno}}`, Refused: []string{"spec.Options.container_prefix"}},
		"DigitPrefix":   {Reason: "The first character must be a letter.", Spec: `{Options: {container_prefix: 9eth}}`, Refused: []string{"spec.Options.container_prefix", "letter"}},
		"SlashPrefix":   {Reason: "The kernel rejects a slash.", Spec: `{Options: {container_prefix: a/b}}`, Refused: []string{"spec.Options.container_prefix"}},
		"Device":        {Reason: "A name may have 15 bytes.", Spec: `{Options: {host_device: abcdefghijklmno}}`},
		"VLANDevice":    {Reason: "A VLAN link can be a parent.", Spec: `{Options: {host_device: ens4.100}}`},
		"LongDevice":    {Reason: "16 bytes are too many.", Spec: `{Options: {host_device: abcdefghijklmnop}}`, Refused: []string{"spec.Options.host_device", "15"}},
		"WideDevice":    {Reason: "The limit is in bytes, not in characters.", Spec: `{Options: {host_device: ääääääää}}`, Refused: []string{"spec.Options.host_device", "15 bytes"}},
		"SlashDevice":   {Reason: "A device is a name, not a path.", Spec: `{Options: {host_device: ../x}}`, Refused: []string{"spec.Options.host_device"}},
		"SpaceInDevice": {Reason: "White space is not allowed.", Spec: `{Options: {host_device: "a b"}}`, Refused: []string{"spec.Options.host_device"}},
		"DotDevice":     {Reason: "A path in sysfs would lead to another folder.", Spec: `{Options: {host_device: ..}}`, Refused: []string{"spec.Options.host_device"}},
		"Tenants":       {Reason: "A ClusterNetwork may be limited to namespaces.", Spec: `{AllowedTenants: [a, b]}`, Kinds: []string{v1.KindClusterNetwork}},
		"TenantsElsewhere": {
			Reason: "Other kinds belong to one namespace.", Spec: `{AllowedTenants: [a]}`, Kinds: []string{v1.KindDanmNet, v1.KindTenantNetwork},
			Refused: []string{"spec.AllowedTenants", "ClusterNetwork"},
		},
		"NoTenantsElsewhere": {
			Reason: "An empty list means not set.", Spec: `{AllowedTenants: []}`, Kinds: []string{v1.KindDanmNet, v1.KindTenantNetwork},
		},
	}
}
