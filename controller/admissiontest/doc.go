// SPDX-License-Identifier: Apache-2.0

// Package admissiontest serves admission to an API server of package apitest from the calling
// process: with the controller's own rights, and the configurations of deployments/.
package admissiontest
