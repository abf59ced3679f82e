import { fetch } from "scripting"
import { searchAddress, shelves, type Shelf } from "./shelves"

export type Action = { type: "search"; base: string; query: string; shelf?: Shelf } | { type: "open"; ref: string }
type Failure = { ok: false; code: "INVALID" | "EXPIRED" | "FAILED"; message: string }
type Item = { ref: string; title: string; pages: number }
type Success = { ok: true; type: "search"; items: Item[] } | { ok: true; type: "open"; address: string }

const LIFE = 10 * 60 * 1000
const MOST = 100
const refs = new Map<string, { address: string; until: number }>()

const failure = (code: Failure["code"], message: string): Failure => ({ ok: false, code, message })

function refOf(address: string): string {
  const now = Date.now()
  for (const [ref, entry] of refs) if (entry.until <= now) refs.delete(ref)
  while (refs.size >= MOST) refs.delete(refs.keys().next().value!)
  let ref = ""
  do ref = `item_${now.toString(36)}_${Math.random().toString(36).slice(2, 10)}`
  while (refs.has(ref))
  refs.set(ref, { address, until: now + LIFE })
  return ref
}

const decode = (text: string) => text.replace(/&amp;/g, "&").replace(/&lt;/g, "<").trim()

/** Reads a page with expressions: there is no document here, nor in the app. */
function read(html: string): Item[] {
  const items: Item[] = []
  for (const m of html.matchAll(/<li[^>]*data-pages="(\d+)"[^>]*>\s*<a href="([^"]+)">([\s\S]*?)<\/a>/g)) {
    items.push({ ref: refOf(m[2]), title: decode(m[3]), pages: Number(m[1]) })
  }
  return items.slice(0, 20)
}

export async function runAction(action: Action): Promise<Success | Failure> {
  try {
    if (action.type === "search") {
      const query = action.query.trim()
      if (!query) return failure("INVALID", "The query is empty.")
      const shelf = action.shelf ?? "all"
      if (!(shelf in shelves)) return failure("INVALID", `There is no shelf ${shelf}.`)
      const response = await fetch(searchAddress(action.base, query, shelf), { headers: { accept: "text/html" }, timeout: 30 })
      if (!response.ok) return failure("FAILED", `HTTP ${response.status}`)
      return { ok: true, type: "search", items: read(await response.text()) }
    }
    const entry = refs.get(action.ref)
    if (!entry || entry.until <= Date.now()) return failure("EXPIRED", "Search again first.")
    return { ok: true, type: "open", address: entry.address }
  } catch (error) {
    const name = String((error as any)?.name || "Error")
    return failure("FAILED", /abort|timeout/i.test(name) ? "It took too long." : "The request did not succeed.")
  }
}
