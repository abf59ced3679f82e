package config

import "strings"

// didYouMean is a clause that names the known word nearest to s, or all known
// ones if none is near.
func didYouMean(s string, known []string) string {
	if near := nearest(s, known); near != "" {
		return `did you mean "` + near + `"?`
	}
	return "known: " + strings.Join(known, ", ")
}

// nearest is the known word that is closest to s, if one is close at all.
func nearest(s string, known []string) string {
	s = fold(s)
	best, limit := "", len(s)/3+2
	for _, k := range known {
		if d := distance(s, fold(k)); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// fold makes killAfter, kill-after and KILL_AFTER look like kill_after.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// distance is the number of characters to insert, delete, replace or swap with
// their neighbour.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j-1]+cost, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
