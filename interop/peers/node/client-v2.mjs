// The official TypeScript client, version 2: on stdio, or with `url` over HTTP.
// `mode: "auto"` asks for the era first, on stdio by starting the server twice.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { drive } from "./drive.mjs";

await drive(async ({ command, args, env, mode, url }) => {
  const client = new Client({ name: "interop-ts-v2", version: "1" }, { versionNegotiation: { mode: mode || "legacy" } });
  await client.connect(
    url
      ? new StreamableHTTPClientTransport(new URL(url))
      : new StdioClientTransport({ command, args, env: { ...process.env, ...env }, stderr: "inherit" }),
  );
  return {
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    close: () => client.close(),
    era: client.getNegotiatedProtocolVersion?.(),
  };
});
