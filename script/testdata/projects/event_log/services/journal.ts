import { Path, Script } from "scripting"

export type Level = "debug" | "info" | "warn" | "error"
export type Entry = { time: string; level: Level; event: string; details?: Record<string, unknown> }

// Paths are made when the file is loaded, long before anything is read.
const FOLDER = Path.join(Script.directory, "journal")
const CURRENT = Path.join(FOLDER, "current.jsonl")
const SWITCH = "journal.verbose"
const MOST = 256 * 1024

const isLevel = (v: unknown): v is Level => v === "debug" || v === "info" || v === "warn" || v === "error"

export function withoutSecrets(text: string, most = 2_000): string {
  return text
    .replace(/(["']?(?:cookie|authorization)["']?\s*[:=]\s*)[^\s,;"'}]+/gi, "$1[left out]")
    .replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g, " ")
    .trim()
    .slice(0, most)
}

function parse(line: string): Entry | null {
  try {
    const e = JSON.parse(line) as Partial<Entry>
    if (typeof e.time !== "string" || !isLevel(e.level) || typeof e.event !== "string") return null
    return { time: e.time, level: e.level, event: withoutSecrets(e.event, 120), details: e.details ?? undefined }
  } catch {
    return null
  }
}

export const parseAll = (content: string): Entry[] =>
  content
    .split(/(?=\{"time":)/)
    .map((piece) => parse(piece.trim()))
    .filter((e): e is Entry => e != null)

export function isVerbose(): boolean {
  return Storage.get<boolean>(SWITCH) === true
}

export async function note(entry: Omit<Entry, "time">): Promise<void> {
  if (!isVerbose()) return
  try {
    if (!(await FileManager.exists(FOLDER))) await FileManager.createDirectory(FOLDER, true)
    await FileManager.appendText(CURRENT, JSON.stringify({ time: new Date().toISOString(), ...entry }) + "\n")
    if (FileManager.statSync(CURRENT).size > MOST) await FileManager.remove(CURRENT)
  } catch {}
}

/** What the log has; nothing where there are no files. */
export async function lastEvents(): Promise<Entry[]> {
  try {
    if (!(await FileManager.exists(CURRENT))) return []
    return parseAll(await FileManager.readAsString(CURRENT))
  } catch {
    return []
  }
}
