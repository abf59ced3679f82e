"""The official Python clients, version 1 and 2: the same steps as drive.mjs."""

import json
import os
import sys
import time
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import mcp
from mcp import StdioServerParameters

config = json.loads(sys.argv[1])
VERSION_2 = hasattr(mcp, "Client")


def say(event, **more):
    print(json.dumps({"at": time.time() * 1000, "event": event, **more}), flush=True)


def text(result):
    error = getattr(result, "is_error", None) or getattr(result, "isError", None)
    return f"{'isError' if error else 'result'}: {str(result.content[0].text)[:120]}"


@asynccontextmanager
async def connect():
    url = config.get("url")
    where = url or StdioServerParameters(
        command=config["command"], args=config["args"], env={**os.environ, **config["env"]}
    )
    if VERSION_2:
        async with mcp.Client(where, mode=config.get("mode") or "auto") as client:
            yield client
        return
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    transport = streamable_http_client(url) if url else stdio_client(where)
    async with transport as (read, write, *_):
        async with mcp.ClientSession(read, write) as session:
            opened = await session.initialize()
            session.protocol_version = opened.protocolVersion  # as version 2 has it
            yield session


def seconds(value):
    return value if VERSION_2 else timedelta(seconds=value)


async def main():
    async with connect() as session:
        say("connected", how=str(getattr(session, "protocol_version", "")))
        with anyio.CancelScope() as scope:
            await call(session, scope)
        if scope.cancelled_caught:
            say("settled", how="cancelled locally")
        await another(session, "next")
        while await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            await another(session, "later")
    say("closed")


async def another(session, event):
    try:
        with anyio.fail_after(20):
            result = await session.call_tool(config["nextTool"], config["nextArguments"])
        say(event, ok=True, how=text(result))
    except Exception as error:  # whatever it is, the harness wants to print it
        say(event, ok=False, how=repr(error)[:200])


async def call(session, scope):
    seen = False

    async def progress(*_):
        nonlocal seen
        if not seen:
            seen = True
            say("progress")
            if config["event"] == "abort":
                tasks.start_soon(stop_later)

    async def stop_later():
        await anyio.sleep(config["afterMs"] / 1000)
        say("stop")
        scope.cancel()

    timeout = config["timeoutMs"] / 1000 if config["event"] == "timeout" else 60
    async with anyio.create_task_group() as tasks:
        try:
            result = await session.call_tool(
                config["tool"],
                config["arguments"],
                read_timeout_seconds=seconds(timeout),
                progress_callback=progress,
            )
            say("settled", how=text(result))
        except Exception as error:
            code = getattr(getattr(error, "error", error), "code", type(error).__name__)
            say("settled", how=f"error {code}: {str(error)[:120]}")


anyio.run(main)
