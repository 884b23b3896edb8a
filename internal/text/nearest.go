// SPDX-License-Identifier: Apache-2.0

package text

const (
	// maxTypos is how many letters may differ between a text and the word that was meant.
	maxTypos = 2
	// maxNearestLength bounds the work on a word, in bytes.
	maxNearestLength = 100
)

// Nearest returns the first of the words that differs from s in the fewest letters, and in no more
// than a typing error does: at most two, and at most half of s. It returns "" when there is none.
func Nearest(s string, words []string) string {
	best, least := "", min(maxTypos, len(s)/2)+1
	for _, w := range words {
		if max(len(s), len(w)) > maxNearestLength {
			continue
		}
		if d := editDistance(s, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// editDistance returns how many letters must be inserted, removed or replaced to make a from b
// (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // the distances of a's beginning to all beginnings of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
