import { lastEvents } from "./services/journal"

AssistantTool.registerExecuteTool(async () => {
  const events = (await lastEvents()).slice(-50)
  const text = events.length ? JSON.stringify({ count: events.length, events }, null, 2) : "There are no events yet."
  return { success: true, output: { assistantParts: [{ type: "text", text }] } }
})
