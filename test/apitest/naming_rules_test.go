// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// Names become links, files and executables on the host.
func TestNamingRules(t *testing.T) {
	t.Parallel()
	runRules(t, map[string]ruleCase{
		"Least": {reason: "A NetworkID is all that is required.", spec: `{NetworkID: a}`},
		"AllCharacters": {
			reason: "Letters, digits, dot, dash and underscore inside a name are safe everywhere.",
			spec:   `{NetworkID: a.B-c_9, NetworkType: My.plugin-2_x}`,
		},
		"LongestID": {reason: "63 characters are allowed without a link.", spec: `{NetworkID: ` + strings.Repeat("x", 63) + `}`},
		"TooLongID": {
			reason: "64 are not.", spec: `{NetworkID: ` + strings.Repeat("x", 64) + `}`,
			refused: []string{"spec.NetworkID", "63"},
		},
		"EmptyID": {reason: "A link or file needs a name.", spec: `{NetworkID: ""}`, refused: []string{"spec.NetworkID"}},
		"NoID":    {reason: "The field is required.", spec: `{NetworkID: null}`, refused: []string{"spec.NetworkID"}},
		"PathInID": {
			reason: "A NetworkID must not leave the folder of CNI configurations.", spec: `{NetworkID: ../../etc/x}`,
			refused: []string{"spec.NetworkID", "letters, digits"},
		},
		"DotsID":       {reason: "The parent folder is no file.", spec: `{NetworkID: ..}`, refused: []string{"spec.NetworkID"}},
		"LeadingDash":  {reason: "A leading dash is an option.", spec: `{NetworkID: -x}`, refused: []string{"spec.NetworkID"}},
		"TrailingDot":  {reason: "The last character is a letter or digit.", spec: `{NetworkID: x.}`, refused: []string{"spec.NetworkID"}},
		"NewlineInID":  {reason: "A dollar in a pattern may match before a newline.", spec: `{NetworkID: "x\n"}`, refused: []string{"spec.NetworkID"}},
		"UnicodeID":    {reason: "Only ASCII.", spec: `{NetworkID: nätz}`, refused: []string{"spec.NetworkID"}},
		"EmptyType":    {reason: "DANM's clients write empty strings; it means ipvlan.", spec: `{NetworkType: ""}`},
		"AnyCaseType":  {reason: "The type is case-insensitive.", spec: `{NetworkType: IPVlan}`},
		"DelegateType": {reason: "Another type is a CNI plugin's name.", spec: `{NetworkType: flannel}`},
		"PathInType": {
			reason: "A NetworkType is executed as root.", spec: `{NetworkType: ../bin/sh}`,
			refused: []string{"spec.NetworkType", "letters, digits"},
		},
		"TooLongForVLAN": {
			reason: "NetworkID.vlan must fit 15 bytes.", spec: `{NetworkID: elevenchars, Options: {host_device: ens4, vlan: 5}}`,
			refused: []string{"spec.NetworkID", "at most 10 characters"},
		},
		"TooLongForVXLAN": {
			reason: "vx_NetworkID too.", spec: `{NetworkID: elevenchars, Options: {host_device: ens4, vxlan: 5}}`,
			refused: []string{"spec.NetworkID", "at most 10 characters"},
		},
		"FitsVLAN":       {reason: "10 characters and .4094 are 15.", spec: `{NetworkID: tencharact, Options: {host_device: ens4, vlan: 4094}}`},
		"LongWithoutVNI": {reason: "No link bears the name.", spec: `{NetworkID: elevenchars, Options: {host_device: ens4}}`},
		"LongSRIOV": {
			reason: "A virtual function's VLAN makes no link.",
			spec:   `{NetworkID: elevenchars, NetworkType: sriov, Options: {device_pool: a/b, vlan: 5}}`,
		},
		"Prefix":        {reason: "14 characters leave room for an index.", spec: `{Options: {container_prefix: abcdefghijklmn}}`},
		"EmptyPrefix":   {reason: "Empty means not set.", spec: `{Options: {container_prefix: ""}}`},
		"LongPrefix":    {reason: "15 do not.", spec: `{Options: {container_prefix: abcdefghijklmno}}`, refused: []string{"spec.Options.container_prefix"}},
		"DigitPrefix":   {reason: "It begins with a letter.", spec: `{Options: {container_prefix: 9eth}}`, refused: []string{"spec.Options.container_prefix", "letter"}},
		"SlashPrefix":   {reason: "The kernel refuses a slash.", spec: `{Options: {container_prefix: a/b}}`, refused: []string{"spec.Options.container_prefix"}},
		"Device":        {reason: "15 bytes are a name's limit.", spec: `{Options: {host_device: abcdefghijklmno}}`},
		"VLANDevice":    {reason: "A VLAN link can be a parent.", spec: `{Options: {host_device: ens4.100}}`},
		"LongDevice":    {reason: "16 bytes are none.", spec: `{Options: {host_device: abcdefghijklmnop}}`, refused: []string{"spec.Options.host_device", "15"}},
		"WideDevice":    {reason: "The limit is in bytes.", spec: `{Options: {host_device: ääääääää}}`, refused: []string{"spec.Options.host_device", "15 bytes"}},
		"SlashDevice":   {reason: "A device is a name, not a path.", spec: `{Options: {host_device: ../x}}`, refused: []string{"spec.Options.host_device"}},
		"SpaceInDevice": {reason: "No white space.", spec: `{Options: {host_device: "a b"}}`, refused: []string{"spec.Options.host_device"}},
		"DotDevice":     {reason: "sysfs would read the wrong folder.", spec: `{Options: {host_device: ..}}`, refused: []string{"spec.Options.host_device"}},
		"Tenants":       {reason: "Namespaces that may attach.", spec: `{AllowedTenants: [a, b]}`, kinds: []string{v1.KindClusterNetwork}},
		"TenantsElsewhere": {
			reason: "Namespaces are walls.", spec: `{AllowedTenants: [a]}`, kinds: []string{v1.KindDanmNet, v1.KindTenantNetwork},
			refused: []string{"spec.AllowedTenants", "ClusterNetwork"},
		},
		"NoTenantsElsewhere": {
			reason: "An empty list says nothing.", spec: `{AllowedTenants: []}`, kinds: []string{v1.KindDanmNet, v1.KindTenantNetwork},
		},
	})
}
