// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes what an Installation has installed. It is a state machine whose state is the cluster's:
// each pass reads the Facts, computes the next Step from them, and does it. A pass that was interrupted is
// repeated. Users' networks stay, unless the Installation requests to remove the definitions.
package uninstall
