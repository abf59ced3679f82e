// Package sigv4 signs requests of the Reactive Agent Protocol with AWS Signature
// Version 4, and verifies them against keys that were configured.
//
// # The model
//
// A [Signer] adds the headers that prove who sends a request (rap.Signer). It is
// the AWS SDK's own signer. A [Verifier] finds out who sent one
// (rap.Authenticator): it takes from the request what was signed, signs that again
// with the key of the same name, and compares in constant time. So there is no
// second implementation of the canonical form that could differ from the first.
//
// # Guarantees
//
//   - Host, date and body are always covered by the signature, and so is every
//     x-amz header that is there. A request that declares its payload unsigned is
//     refused.
//   - A request whose date is further away than Skew, in either direction, is
//     refused; so is a credential scope of another day, region or service.
//   - A signature is good for a few seconds after it was first seen and never
//     again: two equal requests that were signed in one second have one signature,
//     and a runtime may repeat itself; whoever recorded it comes later. What is
//     remembered for that is bounded.
//   - Errors hold no secret, no signature and nothing that says whether an access
//     key is known.
//
// Temporary credentials are verified only where their session token was configured
// with the key. Presigned URLs are no credentials here.
package sigv4
