// The official TypeScript client, version 2. `mode: "auto"` starts the server
// twice: once to find the era, once for the session.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { drive } from "./drive.mjs";

await drive(async ({ command, args, env, mode }) => {
  const client = new Client({ name: "interop-ts-v2", version: "1" }, { versionNegotiation: { mode: mode || "legacy" } });
  await client.connect(new StdioClientTransport({ command, args, env: { ...process.env, ...env }, stderr: "inherit" }));
  return {
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    close: () => client.close(),
  };
});
