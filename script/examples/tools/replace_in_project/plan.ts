// What would change, found without changing anything.

export type Params = { find: string; replace: string; below?: string; whole_words?: boolean }

export type Change = { file: string; places: number; before: string; after: string }

// A letter is what has an upper and a lower case: property escapes of regular
// expressions are newer than what every host can run.
const inWord = (c: string) => /[0-9_]/.test(c) || c.toLowerCase() !== c.toUpperCase()

/** The text with the replacement made, and how often that was. */
export function replaced(text: string, p: Params): { after: string; places: number } {
  let after = "", at = 0, places = 0
  for (;;) {
    const next = text.indexOf(p.find, at)
    if (next < 0) return { after: after + text.slice(at), places }
    const end = next + p.find.length
    const counts = !p.whole_words || (!inWord(text.charAt(next - 1)) && !inWord(text.charAt(end)))
    after += text.slice(at, next) + (counts ? p.replace : p.find)
    if (counts) places++
    at = end
  }
}

export async function plan(p: Params, editor: ScriptEditorProvider): Promise<Change[]> {
  const below = (p.below ?? "").replace(/^(\.?\/)+|\/+$/g, "")
  const changes: Change[] = []
  if (p.find === "" || p.find === p.replace) return changes
  for (const file of editor.getAllFiles()) {
    if (AssistantTool.isCancelled) break
    if (below && file !== below && !file.startsWith(below + "/")) continue
    const before = await editor.getFileContent(file)
    if (before === null) continue
    const { after, places } = replaced(before, p)
    if (places) changes.push({ file, places, before, after })
  }
  return changes
}

export const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`

export const sum = (changes: Change[]) => changes.reduce((n, c) => n + c.places, 0)
