// The official TypeScript client, version 1: on stdio, or with `url` over HTTP.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { drive } from "./drive.mjs";

await drive(async ({ command, args, env, url }) => {
  const client = new Client({ name: "interop-ts-v1", version: "1" });
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command, args, env: { ...process.env, ...env }, stderr: "inherit" });
  await client.connect(transport);
  return {
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    close: () => client.close(),
    era: transport.protocolVersion, // over HTTP
  };
});
