// SPDX-License-Identifier: Apache-2.0

// Package admissiontest serves the admission webhooks to an API server of package apitest from the
// calling process, with the controller's rights and the configurations of deployments/.
package admissiontest
