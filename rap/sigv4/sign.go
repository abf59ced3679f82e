package sigv4

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/belayhq/belay/rap"
)

// DefaultService is the service name that tool servers behind function URLs have.
const DefaultService = "lambda"

var _ rap.Signer = (*Signer)(nil)

// Signer signs requests. Credentials and Region are required. Safe for concurrent
// use; it must not be changed after its first use.
type Signer struct {
	Credentials aws.CredentialsProvider // see [Static]
	Region      string
	Service     string // "": DefaultService

	now func() time.Time // nil: time.Now
}

// Static are credentials that do not change. session is the token of temporary
// ones; "" for others.
func Static(access, secret, session string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: access, SecretAccessKey: secret, SessionToken: session, Source: "static"}, nil
	})
}

// errCredentials: the provider's own error may say more than a log should hold.
var errCredentials = errors.New("sigv4: there are no credentials to sign with")

// Sign implements [rap.Signer]. All headers that r has by then are signed, but
// those that proxies change.
func (s *Signer) Sign(r *http.Request, body []byte) error {
	if s.Credentials == nil || s.Region == "" {
		return fmt.Errorf("%w: Credentials and Region are required", errCredentials)
	}
	keys, err := s.Credentials.Retrieve(r.Context())
	if err != nil || !keys.HasKeys() {
		return errCredentials
	}
	now := time.Now
	if s.now != nil {
		now = s.now
	}
	r.Header.Del("Authorization")
	err = v4.NewSigner().SignHTTP(r.Context(), keys, r, hashOf(body), orDefault(s.Service), s.Region, now().UTC())
	if err != nil {
		return fmt.Errorf("sigv4: %w", err)
	}
	return nil
}

func orDefault(service string) string {
	if service == "" {
		return DefaultService
	}
	return service
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
