package config

import (
	"strings"
	"testing"
	"time"
)

// TestRAPCallers: runtimes that sign, and what is wrong with settings about them.
func TestRAPCallers(t *testing.T) {
	name := write(t, "belay.yaml", `
rap:
  base_url: https://belay.example
  sigv4:
    region: eu-central-1
    keys:
      - {name: rt, access_key: AKID, secret_key: "${S}"}
`)
	c := load(t, Options{File: name, Getenv: env(map[string]string{"S": "0123456789abcdef"})})
	s := c.RAP.SigV4
	if s == nil || s.Region != "eu-central-1" || s.Service != "lambda" || s.Skew != 5*time.Minute || len(s.Keys) != 1 || s.Keys[0].SecretKey != "0123456789abcdef" ||
		!c.RAP.Offer || c.RAP.BaseURL != "https://belay.example" {
		t.Errorf("%+v", c.RAP)
	}
	for text, want := range map[string]string{
		`{sigv4: {keys: [{name: rt, access_key: A, secret_key: 0123456789abcdef}]}}`: "needs the region",
		`{sigv4: {region: r}}`: "nobody could sign",
		`{sigv4: {region: r, skew: 1h, keys: [{name: rt, access_key: A, secret_key: 0123456789abcdef}]}}`:                                              "at most 15m",
		`{sigv4: {region: r, keys: [{name: rt, access_key: A, secret_key: s3cret}]}}`:                                                                  "at least 16 bytes",
		`{sigv4: {region: r, keys: [{name: rt, secret_key: 0123456789abcdef}]}}`:                                                                       "an access_key of its own",
		`{sigv4: {region: r, keys: [{name: local, access_key: A, secret_key: 0123456789abcdef}]}}`:                                                     "local",
		`{sigv4: {region: r, keys: [{name: a, access_key: A, secret_key: 0123456789abcdef}, {name: b, access_key: A, secret_key: 0123456789abcdef}]}}`: "an access_key of its own",
		`{base_url: "belay.example"}`:     "rap.base_url",
		`{callback_url: "belay.example"}`: "rap.callback_url",
		`{base_url: "https://x.test/?a"}`: "rap.base_url",
	} {
		_, err := Load(Options{File: write(t, "bad.yaml", "rap: "+text+"\n"), Getenv: env(nil)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
