package config

import "reflect"

// NewScripts is a server of the scripts in some folders that no file names, complete.
func NewScripts(name string, flags Policy, dirs ...string) Server {
	s := Server{Name: name, Source: "built in", Scripts: &Scripts{}}
	prefill(reflect.ValueOf(s.Scripts).Elem())
	s.Scripts.Dirs = dirs
	s.complete(flags.over(Defaults()))
	return s
}
