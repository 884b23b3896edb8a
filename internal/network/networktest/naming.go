// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"strings"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// NamingRules are about names, which become links, files and executables on the host.
func NamingRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Least": {Reason: "A NetworkID is all that is required.", Spec: `{NetworkID: a}`},
		"AllCharacters": {
			Reason: "Letters, digits, dot, dash and underscore inside a name are safe everywhere.",
			Spec:   `{NetworkID: a.B-c_9, NetworkType: My.plugin-2_x}`,
		},
		"LongestID": {Reason: "63 characters are allowed without a link.", Spec: `{NetworkID: ` + strings.Repeat("x", 63) + `}`},
		"TooLongID": {
			Reason: "64 are not.", Spec: `{NetworkID: ` + strings.Repeat("x", 64) + `}`,
			Refused: []string{"spec.NetworkID", "63"},
		},
		"EmptyID": {Reason: "A link or file needs a name.", Spec: `{NetworkID: ""}`, Refused: []string{"spec.NetworkID"}},
		"NoID":    {Reason: "The field is required.", Spec: `{NetworkID: null}`, Refused: []string{"spec.NetworkID"}},
		"PathInID": {
			Reason: "A NetworkID must not leave the folder of CNI configurations.", Spec: `{NetworkID: ../../etc/x}`,
			Refused: []string{"spec.NetworkID", "letters, digits"},
		},
		"DotsID":       {Reason: "The parent folder is no file.", Spec: `{NetworkID: ..}`, Refused: []string{"spec.NetworkID"}},
		"LeadingDash":  {Reason: "A leading dash is an option.", Spec: `{NetworkID: -x}`, Refused: []string{"spec.NetworkID"}},
		"TrailingDot":  {Reason: "The last character is a letter or digit.", Spec: `{NetworkID: x.}`, Refused: []string{"spec.NetworkID"}},
		"NewlineInID":  {Reason: "A dollar in a pattern may match before a newline.", Spec: `{NetworkID: "x\n"}`, Refused: []string{"spec.NetworkID"}},
		"UnicodeID":    {Reason: "Only ASCII.", Spec: `{NetworkID: nätz}`, Refused: []string{"spec.NetworkID"}},
		"EmptyType":    {Reason: "DANM's clients write empty strings; it means ipvlan.", Spec: `{NetworkType: ""}`},
		"AnyCaseType":  {Reason: "The type is case-insensitive.", Spec: `{NetworkType: IPVlan}`},
		"DelegateType": {Reason: "Another type is a CNI plugin's name.", Spec: `{NetworkType: flannel}`},
		"PathInType": {
			Reason: "A NetworkType is executed as root.", Spec: `{NetworkType: ../bin/sh}`,
			Refused: []string{"spec.NetworkType", "letters, digits"},
		},
		"TooLongForVLAN": {
			Reason: "NetworkID.vlan must fit 15 bytes.", Spec: `{NetworkID: elevenchars, Options: {host_device: ens4, vlan: 5}}`,
			Refused: []string{"spec.NetworkID", "at most 10 characters"},
		},
		"TooLongForVXLAN": {
			Reason: "vx_NetworkID too.", Spec: `{NetworkID: elevenchars, Options: {host_device: ens4, vxlan: 5}}`,
			Refused: []string{"spec.NetworkID", "at most 10 characters"},
		},
		"FitsVLAN":       {Reason: "10 characters and .4094 are 15.", Spec: `{NetworkID: tencharact, Options: {host_device: ens4, vlan: 4094}}`},
		"LongWithoutVNI": {Reason: "No link bears the name.", Spec: `{NetworkID: elevenchars, Options: {host_device: ens4}}`},
		"LongSRIOV": {
			Reason: "A virtual function's VLAN makes no link.",
			Spec:   `{NetworkID: elevenchars, NetworkType: sriov, Options: {device_pool: a/b, vlan: 5}}`,
		},
		"Prefix":        {Reason: "14 characters leave room for an index.", Spec: `{Options: {container_prefix: abcdefghijklmn}}`},
		"EmptyPrefix":   {Reason: "Empty means not set.", Spec: `{Options: {container_prefix: ""}}`},
		"LongPrefix":    {Reason: "15 do not.", Spec: `{Options: {container_prefix: abcdefghijklmno}}`, Refused: []string{"spec.Options.container_prefix"}},
		"DigitPrefix":   {Reason: "It begins with a letter.", Spec: `{Options: {container_prefix: 9eth}}`, Refused: []string{"spec.Options.container_prefix", "letter"}},
		"SlashPrefix":   {Reason: "The kernel refuses a slash.", Spec: `{Options: {container_prefix: a/b}}`, Refused: []string{"spec.Options.container_prefix"}},
		"Device":        {Reason: "15 bytes are a name's limit.", Spec: `{Options: {host_device: abcdefghijklmno}}`},
		"VLANDevice":    {Reason: "A VLAN link can be a parent.", Spec: `{Options: {host_device: ens4.100}}`},
		"LongDevice":    {Reason: "16 bytes are none.", Spec: `{Options: {host_device: abcdefghijklmnop}}`, Refused: []string{"spec.Options.host_device", "15"}},
		"WideDevice":    {Reason: "The limit is in bytes.", Spec: `{Options: {host_device: ääääääää}}`, Refused: []string{"spec.Options.host_device", "15 bytes"}},
		"SlashDevice":   {Reason: "A device is a name, not a path.", Spec: `{Options: {host_device: ../x}}`, Refused: []string{"spec.Options.host_device"}},
		"SpaceInDevice": {Reason: "No white space.", Spec: `{Options: {host_device: "a b"}}`, Refused: []string{"spec.Options.host_device"}},
		"DotDevice":     {Reason: "sysfs would read the wrong folder.", Spec: `{Options: {host_device: ..}}`, Refused: []string{"spec.Options.host_device"}},
		"Tenants":       {Reason: "Namespaces that may attach.", Spec: `{AllowedTenants: [a, b]}`, Kinds: []string{v1.KindClusterNetwork}},
		"TenantsElsewhere": {
			Reason: "Namespaces are walls.", Spec: `{AllowedTenants: [a]}`, Kinds: []string{v1.KindDanmNet, v1.KindTenantNetwork},
			Refused: []string{"spec.AllowedTenants", "ClusterNetwork"},
		},
		"NoTenantsElsewhere": {
			Reason: "An empty list says nothing.", Spec: `{AllowedTenants: []}`, Kinds: []string{v1.KindDanmNet, v1.KindTenantNetwork},
		},
	}
}
