// What is looked for in a line.

export type Kind = "marks" | "conflicts" | "secrets" | "long" | "text"

export const kinds = ["marks", "conflicts", "secrets", "syntax", "long"]

const LONG = 400 // characters of a line

const secrets = [
  /-----BEGIN [A-Z ]*PRIVATE KEY-----/,
  /\bAKIA[0-9A-Z]{16}\b/,
  /\bgh[pousr]_[A-Za-z0-9]{36}\b/,
  /\bxox[abprs]-[A-Za-z0-9-]{10,}/,
  /\b(?:password|passwd|secret|token|api_?key)["']?\s*[:=]\s*["'][^"'\s]{8,}["']/i,
]

/** What is wrong with a line, each with the words to show. */
export function check(line: string, wanted: Set<string>, text: string): { kind: Kind; shown: string }[] {
  const found: { kind: Kind; shown: string }[] = []
  const shown = line.trim().slice(0, 160)
  if (wanted.has("marks") && /\b(?:TODO|FIXME|XXX|HACK)\b/.test(line)) found.push({ kind: "marks", shown })
  if (wanted.has("conflicts") && /^(?:<{7}|>{7}|\|{7})(?: |$)/.test(line)) found.push({ kind: "conflicts", shown })
  if (wanted.has("secrets") && secrets.some((s) => s.test(line))) found.push({ kind: "secrets", shown: "a line that looks like a secret (not shown)" })
  if (wanted.has("long") && line.length > LONG) found.push({ kind: "long", shown: `${line.length} characters` })
  if (text && line.toLowerCase().includes(text)) found.push({ kind: "text", shown })
  return found
}
