package proc

func helper() bool { return false }
