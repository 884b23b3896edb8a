// SPDX-License-Identifier: Apache-2.0

package policy

// Error is a mistake of a person: the last good state stays until it is mended.
type Error struct {
	// Reason is one of api/placement/v1alpha1's, for condition and Event.
	Reason string
	// Field where the mistake is, of Object if that is named.
	Field string
	// Object that the field is of, such as "Placement shop/all"; empty: the placed one.
	Object string
	// Message says what is wrong and what would do.
	Message string
}

// Error is what a condition and an Event say.
func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Object != "" {
		text = e.Object + ": " + text
	}
	return text
}
