// Package seedclient is a client of the two routes that stop a tool run and ask
// how it stands, as their first public description has them: POST
// /orchestrate/cancel and GET /orchestrate/status/{request_id}. It stands for
// the clients that were written before Belay, and so it was written from that
// page alone and knows nothing else: no other key, no other status, no type of
// this module. Tests use it to see that such clients work unchanged.
//
// It is strict about what the page says (keys, types, the words, which key is
// there when) and ignores every key that the page does not name.
package seedclient
