// SPDX-License-Identifier: Apache-2.0

package wire

// CNI error codes (CNI 1.1, section 2, "Well-known error codes"), then ours.
const (
	// CodeVersion: the configuration's cniVersion is not supported.
	CodeVersion uint = 1
	// CodeField: the configuration has a field that is not supported.
	CodeField uint = 2
	// CodeEnv: an environment variable is missing or invalid.
	CodeEnv uint = 4
	// CodeIO: input or output failed.
	CodeIO uint = 5
	// CodeDecode: standard input is not the JSON that it should be.
	CodeDecode uint = 6
	// CodeConfig: the network configuration is invalid.
	CodeConfig uint = 7
	// CodeTryAgain: waiting helps; the runtime tries again.
	CodeTryAgain uint = 11
	// CodeNotAvailable: STATUS, the plugin cannot serve an ADD.
	CodeNotAvailable uint = 50
	// CodeFailed: the daemon tried and failed, and says why.
	CodeFailed uint = 100
	// CodeNotThere: the command is not implemented yet.
	CodeNotThere uint = 101
)
