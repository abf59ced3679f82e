package proc

// Descends returns true here: whose child a process is, cannot be told for certain.
func Descends(int, int) bool { return true }
