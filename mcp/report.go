package mcp

// MetaReport is the member of _meta of a progress notification by which a server of
// Belay's own says which of its reports this is, a text: one with the same id takes
// the place of the earlier one, and one without an id ("") stands by itself (AT-54).
const MetaReport = "io.github.belayhq/report"
