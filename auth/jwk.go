package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
)

// Bounds on keys.
const (
	maxKeys    = 100     // of one issuer
	maxKeyBody = 1 << 20 // bytes of a JWKS or a discovery document
	minRSA     = 2048
	maxRSA     = 8192 // verifying with a monster costs us, not its maker
)

// key verifies signatures of exactly one algorithm.
type key struct {
	id     string // kid; "" for none
	only   bool   // it is the issuer's only key: whatever kid a token names, it is meant
	alg    string
	public any // as the library wants it: []byte, *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey
}

// keyOf finds the algorithm of a public key.
func keyOf(public crypto.PublicKey) (key, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA || bits > maxRSA {
			return key{}, fmt.Errorf("an RSA key of %d bits, want %d to %d", bits, minRSA, maxRSA)
		}
		if k.E < 3 || k.E%2 == 0 {
			return key{}, fmt.Errorf("an RSA key with exponent %d", k.E)
		}
		return key{alg: algRS256, public: k}, nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return key{}, fmt.Errorf("an elliptic curve key that is not on P-256")
		}
		return key{alg: algES256, public: k}, nil
	case ed25519.PublicKey:
		if len(k) != ed25519.PublicKeySize {
			return key{}, fmt.Errorf("an Ed25519 key of %d bytes", len(k))
		}
		return key{alg: algEdDSA, public: k}, nil
	default:
		return key{}, fmt.Errorf("a key of type %T", public)
	}
}

// pemKey reads one public key or certificate.
func pemKey(text []byte) (key, error) {
	block, rest := pem.Decode(text)
	if block == nil {
		return key{}, fmt.Errorf("%w: no PEM block in the key", ErrConfig)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return key{}, fmt.Errorf("%w: several PEM blocks; give several keys as a JWKS file", ErrConfig)
	}
	var (
		public crypto.PublicKey
		err    error
	)
	switch block.Type {
	case "PUBLIC KEY":
		public, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		public, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			public = c.PublicKey
		}
	default:
		return key{}, fmt.Errorf("%w: a PEM block of type %.40q; want PUBLIC KEY or CERTIFICATE", ErrConfig, block.Type)
	}
	if err != nil {
		return key{}, fmt.Errorf("%w: the PEM key cannot be read: %w", ErrConfig, err)
	}
	k, err := keyOf(public)
	if err != nil {
		return key{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	k.only = true
	return k, nil
}

// jwk is one key of a JWKS (RFC 7517, RFC 7518, RFC 8037).
type jwk struct {
	Kty string   `json:"kty"`
	Use string   `json:"use"`
	Ops []string `json:"key_ops"`
	Alg string   `json:"alg"`
	Kid string   `json:"kid"`
	Crv string   `json:"crv"`
	N   string   `json:"n"`
	E   string   `json:"e"`
	X   string   `json:"x"`
	Y   string   `json:"y"`
	K   string   `json:"k"`
}

// parseJWKS reads a set of keys. A key that is for something else, or that we
// cannot use, is left out, as RFC 7517 section 5 asks; a set without any usable
// key is an error, which says why the last one was not. Shared secrets are
// taken from files only: a secret that is published is none.
func parseJWKS(text []byte, secrets bool) ([]key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("not a JWKS: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("a JWKS of %d keys, at most %d are taken", len(set.Keys), maxKeys)
	}
	var (
		keys []key
		last = fmt.Errorf("it is empty")
	)
	for _, raw := range set.Keys {
		var j jwk
		err := json.Unmarshal(raw, &j)
		if err == nil {
			var k key
			if k, err = j.key(secrets); err == nil {
				keys = append(keys, k)
				continue
			}
		}
		last = err
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("a JWKS without a usable key: %w", last)
	}
	return keys, nil
}

func (j *jwk) key(secrets bool) (key, error) {
	switch {
	case j.Use != "" && j.Use != "sig":
		return key{}, fmt.Errorf("a key for use %.40q", j.Use)
	case len(j.Ops) > 0 && !slices.Contains(j.Ops, "verify"):
		return key{}, fmt.Errorf("a key not for verifying")
	case len(j.Kid) > maxKeyID:
		return key{}, fmt.Errorf("a kid of %d bytes", len(j.Kid))
	}
	k, err := j.material(secrets)
	if err != nil {
		return key{}, err
	}
	if j.Alg != "" && j.Alg != k.alg {
		return key{}, fmt.Errorf("a key for algorithm %.40q", j.Alg)
	}
	k.id = j.Kid
	return k, nil
}

func (j *jwk) material(secrets bool) (key, error) {
	switch {
	case j.Kty == "RSA":
		n, err := unbase64(j.N, maxRSA/8+1)
		if err != nil {
			return key{}, err
		}
		e, err := unbase64(j.E, 4)
		if err != nil {
			return key{}, err
		}
		exponent := new(big.Int).SetBytes(e).Int64()
		if exponent > 1<<31-1 {
			return key{}, fmt.Errorf("an RSA key with exponent %d", exponent)
		}
		return keyOf(&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent)})
	case j.Kty == "EC" && j.Crv == "P-256":
		x, err := unbase64(j.X, 32)
		if err != nil {
			return key{}, err
		}
		y, err := unbase64(j.Y, 32)
		if err != nil {
			return key{}, err
		}
		if len(x) != 32 || len(y) != 32 {
			return key{}, fmt.Errorf("a P-256 key with coordinates of %d and %d bytes", len(x), len(y))
		}
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y)) // checks that it is on the curve
		if err != nil {
			return key{}, err
		}
		return keyOf(public)
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		x, err := unbase64(j.X, ed25519.PublicKeySize)
		if err != nil {
			return key{}, err
		}
		return keyOf(ed25519.PublicKey(x))
	case j.Kty == "oct" && secrets:
		k, err := unbase64(j.K, maxKeyBody)
		if err != nil {
			return key{}, err
		}
		if len(k) < minSecret {
			return key{}, fmt.Errorf("a secret of %d bytes, want at least %d", len(k), minSecret)
		}
		return key{alg: algHS256, public: k}, nil
	default:
		return key{}, fmt.Errorf("a key of type %.40q, curve %.40q", j.Kty, j.Crv)
	}
}

func unbase64(s string, limit int) ([]byte, error) {
	if base64.RawURLEncoding.DecodedLen(len(s)) > limit {
		return nil, fmt.Errorf("a number of a key is longer than %d bytes", limit)
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("a number of a key is not base64url")
	}
	return b, nil
}
