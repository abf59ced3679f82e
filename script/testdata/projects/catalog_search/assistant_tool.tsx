import { Script, Text, VStack } from "scripting"
import { runAction } from "./src/action"
import type { Shelf } from "./src/shelves"

type Params = { query: string; shelf?: Shelf; base: string }

function message(result: Awaited<ReturnType<typeof runAction>>): string {
  return JSON.stringify(result)
}

export async function execute(params: Params): Promise<{ success: boolean; message: string }> {
  const result = await runAction({ type: "search", base: params.base, query: String(params?.query || ""), shelf: params?.shelf })
  return { success: result.ok, message: message(result) }
}

// The same file is the app's page too; it is never shown here.
export const Page = ({ title }: { title: string }) => (
  <VStack spacing={8}>
    <Text font="headline">{title}</Text>
    <>{[1, 2].map((n) => <Text key={n}>{n}</Text>)}</>
  </VStack>
)

if (Script.env === "assistant_tool") {
  AssistantTool.registerApprovalRequest<Params>(async () => ({
    title: "Search the catalogue",
    message: "The assistant will search once. It gets short-lived references, never addresses.",
    primaryButtonLabel: "Allow",
    secondaryButtonLabel: "Cancel",
  }))

  AssistantTool.registerExecuteToolWithApproval<Params>(async (params, { primaryConfirmed }) => {
    if (!primaryConfirmed) return { success: false, message: "The search was not allowed." }
    AssistantTool.report("searching…", "catalog-search")
    return execute(params)
  })
}
