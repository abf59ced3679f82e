// What the tool knows of each source: where it is, how it is asked, and how its
// answer is read.

export type Hit = { title: string; url: string; text: string }

export type Source = {
  name: string
  base: string
  path: (query: string, limit: number) => string
  read: (answer: any) => Hit[]
}

const asked = (values: Record<string, string | number>) =>
  new URLSearchParams(Object.entries(values).map(([k, v]) => [k, String(v)] as [string, string])).toString()

export const sources: Source[] = [
  {
    name: "wikipedia",
    base: "https://en.wikipedia.org",
    path: (query, limit) => "/w/api.php?" + asked({ action: "query", list: "search", format: "json", srsearch: query, srlimit: limit }),
    read: (answer) => answer.query.search.map((page: any) => ({
      title: page.title,
      url: "https://en.wikipedia.org/wiki/" + encodeURIComponent(page.title.replace(/ /g, "_")),
      text: page.snippet,
    })),
  },
  {
    name: "hackernews",
    base: "https://hn.algolia.com",
    path: (query, limit) => "/api/v1/search?" + asked({ query, tags: "story", hitsPerPage: limit }),
    read: (answer) => answer.hits.map((story: any) => ({
      title: story.title,
      url: story.url || "https://news.ycombinator.com/item?id=" + story.objectID,
      text: `${story.points} points, ${story.num_comments} comments`,
    })),
  },
  {
    name: "github",
    base: "https://api.github.com",
    path: (query, limit) => "/search/repositories?" + asked({ q: query, per_page: limit }),
    read: (answer) => answer.items.map((repository: any) => ({
      title: repository.full_name,
      url: repository.html_url,
      text: `${repository.description || "no description"} (${repository.stargazers_count} stars)`,
    })),
  },
  {
    name: "stackoverflow",
    base: "https://api.stackexchange.com",
    path: (query, limit) => "/2.3/search/advanced?" + asked({ q: query, site: "stackoverflow", sort: "relevance", order: "desc", pagesize: limit }),
    read: (answer) => answer.items.map((question: any) => ({
      title: question.title,
      url: question.link,
      text: `${question.answer_count} answers${question.is_answered ? ", solved" : ""}`,
    })),
  },
  {
    name: "crossref",
    base: "https://api.crossref.org",
    path: (query, limit) => "/works?" + asked({ query, rows: limit, select: "title,URL,container-title" }),
    read: (answer) => answer.message.items.map((work: any) => ({
      title: (work.title || ["without a title"])[0],
      url: work.URL,
      text: (work["container-title"] || []).join(", "),
    })),
  },
]

const entities: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#039": "'", "#39": "'", nbsp: " " }

/** Text without markup, on one line, at most so long. */
export function plain(text: unknown, most: number): string {
  const line = String(text ?? "")
    .replace(/<[^<>]*>/g, "")
    .replace(/&([a-z]+|#\d+);/g, (all, name) => entities[name] ?? all)
    .replace(/\s+/g, " ")
    .trim()
  return line.length > most ? line.slice(0, most - 1) + "…" : line
}
