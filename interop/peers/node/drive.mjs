// What both TypeScript clients do: connect, start the call, end it the way the
// configuration says, make one more call at once and one for each line on
// stdin, until stdin ends. Each step is one JSON line on stdout with its time.
import { createInterface } from "node:readline";

export const config = JSON.parse(process.argv[2]);

function say(event, more = {}) {
  process.stdout.write(JSON.stringify({ at: Date.now(), event, ...more }) + "\n");
}

function text(result) {
  const first = result?.content?.[0]?.text ?? JSON.stringify(result);
  return `${result?.isError ? "isError" : "result"}: ${String(first).slice(0, 120)}`;
}

// drive takes what differs between the versions: connect() returns
// { call(tool, args, options), close(), era }.
export async function drive(connect) {
  const session = await connect(config);
  say("connected", { how: session.era });

  const stop = new AbortController();
  let seen = false;
  const onprogress = () => {
    if (seen) return;
    seen = true;
    say("progress");
    if (config.event !== "abort") return;
    setTimeout(() => {
      say("stop");
      stop.abort("the user pressed Stop");
    }, config.afterMs);
  };
  const timeout = config.event === "timeout" ? config.timeoutMs : 60_000;
  try {
    say("settled", { how: text(await session.call(config.tool, config.arguments, { signal: stop.signal, timeout, onprogress })) });
  } catch (error) {
    say("settled", { how: `error ${error.code ?? error.name}: ${String(error.message ?? error).slice(0, 120)}` });
  }
  const another = async (event) => {
    try {
      say(event, { ok: true, how: text(await session.call(config.nextTool, config.nextArguments, { timeout: 20_000 })) });
    } catch (error) {
      say(event, { ok: false, how: String(error.message ?? error).slice(0, 200) });
    }
  };
  await another("next");
  for await (const _ of createInterface({ input: process.stdin })) await another("later");
  await session.close();
  say("closed");
  process.exit(0);
}
