export const shelves = { all: 0, books: 1, maps: 2 } as const
export type Shelf = keyof typeof shelves

export function searchAddress(base: string, query: string, shelf: Shelf): string {
  const url = new URL("/find", base)
  url.searchParams.set("q", query)
  if (shelf !== "all") url.searchParams.set("shelf", String(shelves[shelf]))
  return url.toString()
}
