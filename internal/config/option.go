package config

import (
	"maps"
	"reflect"
	"time"
)

// Option is a setting that may be left unsaid.
type Option[T any] struct {
	Value T
	Set   bool
}

// Some is a setting that was said.
func Some[T any](v T) Option[T] { return Option[T]{Value: v, Set: true} }

func (o *Option[T]) isSet() bool { return o.Set }

func (o *Option[T]) decode(d *decoder, at spot, f field) {
	if at.value.kind == kindNull {
		d.failf(at, "%s has no value", f.key)
		return
	}
	if own, ok := any(&o.Value).(decodes); ok {
		before := len(d.problems)
		own.decode(d, at, f)
		o.Set = len(d.problems) == before
		return
	}
	if d.scalar(reflect.ValueOf(&o.Value).Elem(), at, f) {
		o.Set = true
	}
}

// over puts p's settings over those of base: what p does not say is base's.
func (p Policy) over(base Policy) Policy {
	overlay(reflect.ValueOf(&p).Elem(), reflect.ValueOf(base))
	return p
}

// Over puts t's settings over those of base: what t does not say is base's.
func (t ToolPolicy) over(base ToolPolicy) ToolPolicy {
	overlay(reflect.ValueOf(&t).Elem(), reflect.ValueOf(base))
	return t
}

// overlay fills what dst does not say from src, field by field. Maps and lists
// add up, the nearer entry first.
func overlay(dst, src reflect.Value) {
	if o, ok := reflect.TypeAssert[interface{ isSet() bool }](dst.Addr()); ok {
		if !o.isSet() {
			dst.Set(src)
		}
		return
	}
	switch dst.Kind() {
	case reflect.Struct:
		for i := range dst.NumField() {
			overlay(dst.Field(i), src.Field(i))
		}
	case reflect.Pointer:
		if dst.IsNil() {
			dst.Set(src)
		}
	case reflect.Slice: // hooks are taken whole, so these are rules
		if src.Len() > 0 {
			dst.Set(reflect.AppendSlice(dst.Slice3(0, dst.Len(), dst.Len()), src))
		}
	case reflect.Map:
		if src.Len() > 0 {
			all := maps.Clone(src.Interface().(map[string]string)) //nolint:forcetypeassert // labels are the only map of a policy
			maps.Copy(all, dst.Interface().(map[string]string))    //nolint:forcetypeassert // see above
			dst.Set(reflect.ValueOf(all))
		}
	}
}

// Defaults are the built-in defaults, as the tags in schema.go have them.
func Defaults() Policy {
	var p Policy
	setDefaults(reflect.ValueOf(&p).Elem())
	return p
}

// setDefaults sets every option of a struct that says nothing to its default.
func setDefaults(v reflect.Value) {
	for i := range v.NumField() {
		f, def := v.Field(i), v.Type().Field(i).Tag.Get("default")
		switch o := f.Addr().Interface().(type) {
		case *Option[string]:
			orDefault(o, def)
		case *Option[bool]:
			orDefault(o, def == "true")
		case *Option[int]:
			n := 0
			for _, digit := range def {
				n = 10*n + int(digit-'0')
			}
			orDefault(o, n)
		case *Option[time.Duration]:
			d, err := time.ParseDuration(def)
			if err != nil {
				panic(err) // a tag of ours
			}
			orDefault(o, d)
		case *Option[Disconnect]:
			orDefault(o, Disconnect{Mode: DisconnectMode(def)})
		default:
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				f = f.Elem()
			}
			if f.Kind() == reflect.Struct {
				setDefaults(f)
			}
		}
	}
}

func orDefault[T any](o *Option[T], v T) {
	if !o.Set {
		*o = Some(v)
	}
}
