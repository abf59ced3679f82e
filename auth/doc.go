// Package auth says who sent a request, and what they may do.
//
// # The model
//
// A [Principal] is a name and a set of permissions. An [Authenticator] finds it
// in an HTTP request, from one of these, in this order:
//
//   - the Authorization header, "Bearer" and a token. A static token is looked
//     up by its SHA-256, which is all that is kept of it; this user's own
//     [LocalToken] is one of those. Anything else with two dots is a JWT of a
//     configured [Issuer];
//   - the client certificate that the TLS layer has verified: a SAN means a
//     principal;
//   - the other end of a unix socket, as the kernel names it ([WithPeer]): this
//     process's own user is "local".
//
// What is there decides. A wrong token is not made good by a certificate, and
// nothing else is a credential: no cookie, no query string, no body.
//
// Roles are names of lists of [Permission]; the configuration gives them to
// principals. The table of permissions is closed. One that ends in ".own"
// reaches the principal's own runs, told by the run's owner being the
// principal's name; [Principal.Reach] is the word for how far somebody gets. A
// door that finds [Own] filters by owner before it looks anything up, so that
// a run of somebody else and no run at all are the same thing.
//
// A [Limiter] bounds how often a principal may do something. [Describe] makes
// the HTTP answer of any error here: it is the only place that does.
//
// # Guarantees
//
//   - Tokens are compared in constant time, by construction: the type of a
//     token's hash cannot be compared by == nor be a map's key, the compiler
//     refuses both. Where it stands in a table depends on a seed of this process.
//   - A key is for one algorithm, which follows from its type: RSA RS256, P-256
//     ES256, Ed25519 EdDSA, a secret HS256. The token's "alg" only has to agree.
//     So "none" has no key, and a public key never is a secret. Keys that a
//     token brings or points to (jwk, jku, x5c, x5u) are never looked at; a
//     critical header extension is refused.
//   - A JWT is believed only with exp, iss and aud, within the issuer's leeway
//     (30 s, at most 5 min) for exp, nbf and iat; times have to be times. One that
//     calls itself something else than an access token (typ), or is bound to a key
//     (cnf), is refused, and so is an email as a name that was not verified.
//   - Names of principals are checked, not cleaned, so that two people never
//     become one; they hold no control, format or invisible characters, so that a
//     log line stays one and two people never look the same by them. Names of different sources never meet: a subject of issuer corp
//     is "corp:…", configured names have no colon, "local" is reserved.
//   - No error, log line or answer of this package holds a token, a part of one,
//     or a claim that was not checked.
//   - Everything is bounded: the header, the query string that is looked
//     through, verified tokens that are remembered, the keys of an issuer, their
//     sizes and documents, the time to fetch them, principals with a rate of
//     their own.
//
// # Keys of issuers
//
// Keys that are fetched are fetched when a token first needs them, then again
// in the background when they are due: once they are there, an issuer that
// hangs delays nobody whose key is known. An unknown kid causes a read, but at
// most one in [Issuer].Again, whoever sends how many. A read that fails leaves
// the keys as they are, until they are older than MaxStale; then, and when
// there never were any, the error is [ErrUnavailable], which is no 401. A
// verified token is remembered until it expires or the issuer's keys change,
// so a withdrawn key vouches for nobody after the next read. Redirects are not
// followed, and only https, or http on loopback, is fetched.
//
// # What it does not do
//
// It does not check Host or Origin (the HTTP servers do), has no sessions, no
// log-in and no revocation list: a JWT is good until it expires, so let them
// expire soon. Whether a peer's process lies inside a run's tree is found out
// by whoever knows processes; [Principal.Confined] is what follows from it. The
// same user is not a sandbox (DESIGN 11, 10).
//
// Only an issuer whose keys are fetched starts goroutines: one for a read.
// [Authenticator.Close] ends it and waits.
package auth
