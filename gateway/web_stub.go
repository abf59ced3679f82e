package gateway

func (u *upstream) dial() error { return ErrConfig }
