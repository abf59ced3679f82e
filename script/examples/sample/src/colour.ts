// TODO: read the colours from the settings
const colours: Record<string, string> = { ok: "green", late: "orange", failed: "red" }

export function colourOf(state: string): string {
  return colours[state] ?? "grey" // FIXME: a colour for states that nobody knows
}
