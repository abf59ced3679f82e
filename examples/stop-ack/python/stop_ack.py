"""Stop-ack for servers on the official Python SDK: says when the handler of a
cancelled tool call has really returned. See docs/stop-ack.md.

Version 2:  server = MCPServer("name", extensions=[StopAck()]); install(server)
Version 1:  server = FastMCP("name"); install(server)

A plain (not async) tool runs in a thread that nobody can interrupt; its ack
comes when the thread has ended, for the SDK waits for it.
"""

import functools
import time
from contextvars import ContextVar

import anyio
import anyio.lowlevel
from mcp.server.auth.middleware.auth_context import get_access_token
from pydantic import BaseModel

NAME = "io.github.belayhq/stop-ack"
KEEP, MAX, MAX_WAIT = 60, 10_000, 25  # seconds an end is remembered, calls, seconds one answer may take
_call: ContextVar[dict | None] = ContextVar("stop_ack", default=None)


class Notice(BaseModel):
    method: str = "notifications/stop-ack"
    params: dict


def partial(text: str) -> None:
    """Notes what the tool has so far, for the case that it is stopped."""
    if (call := _call.get()) is not None:
        call["partial"] = text[:20_000]


class Calls:
    def __init__(self):
        self.all = {}

    async def watch(self, token, request_id, run, notify):
        """Runs a handler, remembers how it ended, and tells a client that cancelled it."""
        now = time.monotonic()
        for old in [t for t, c in self.all.items() if c["until"] and c["until"] < now]:
            del self.all[old]
        if not isinstance(token, str) or not 0 < len(token) <= 128 or token in self.all or len(self.all) >= MAX:
            return await run()
        call = {"who": _who(), "outcome": "running", "partial": "", "ended": anyio.Event(), "until": 0}
        self.all[token] = call
        scope, cancelled, outcome = _call.set(call), False, "failed"
        try:
            result = await run()
            outcome = "failed" if _is_error(result) else "completed"
            await anyio.lowlevel.checkpoint_if_cancelled()  # it went on to its end in spite of a cancel
            return result
        except anyio.get_cancelled_exc_class():
            cancelled = True
            outcome = "completed" if outcome == "completed" else "stopped"
            raise
        finally:
            _call.reset(scope)
            call.update(outcome=outcome, until=time.monotonic() + KEEP)
            if outcome == "completed":
                call["partial"] = ""
            call["ended"].set()
            if cancelled and notify:
                params = {"token": token, "requestId": request_id} | _answer(call)
                with anyio.move_on_after(5, shield=True):
                    await notify(Notice(params=params))

    async def wait(self, token, seconds):
        """Answers when the call has ended, or the time is over."""
        call = self.all.get(token)
        if call is None or call["who"] != _who():
            return {"outcome": "unknown"}
        with anyio.move_on_after(min(max(seconds, 0), MAX_WAIT)):
            await call["ended"].wait()
        return _answer(call)


def _answer(call):
    shown = call["partial"] if call["outcome"] != "running" else ""
    return {"outcome": call["outcome"]} | ({"partial": shown} if shown else {})


def _who():
    """The principal, as far as the transport knows it: only it is told."""
    access = get_access_token()
    return access.client_id if access else ""


def _is_error(result):
    result = getattr(result, "root", result)  # version 1 wraps it
    return bool(getattr(result, "isError", None) or getattr(result, "is_error", None))


def _token(meta):
    """The token in a request's _meta: a dict in version 2, a model in version 1."""
    meta = meta if isinstance(meta, dict) else getattr(meta, "model_extra", None) or {}
    ask = meta.get(NAME)
    return ask.get("token") if isinstance(ask, dict) else None


def _declare(low, doors):
    """Says in the legacy handshake what the server can do."""
    low.create_initialization_options = functools.partial(
        low.create_initialization_options, experimental_capabilities={NAME: doors}
    )


def install(server):
    """Declares the extension in the legacy handshake. In version 1 it also watches
    the tools; that version lets no request of an extension through, so the client
    is told and cannot ask."""
    if hasattr(server, "_lowlevel_server"):  # version 2
        return _declare(server._lowlevel_server, {"notify": True, "await": True})
    from mcp.types import CallToolRequest

    calls, low = Calls(), server._mcp_server
    handler = low.request_handlers[CallToolRequest]

    async def watched(request):
        ctx = low.request_context
        notify = functools.partial(ctx.session.send_notification, related_request_id=ctx.request_id)
        return await calls.watch(_token(request.params.meta), ctx.request_id, lambda: handler(request), notify)

    low.request_handlers[CallToolRequest] = watched
    _declare(low, {"notify": True})


try:
    from mcp.server.extension import Extension, MethodBinding
    from mcp_types import RequestParams
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
except ImportError:  # version 1
    pass
else:

    class AwaitParams(RequestParams):
        token: str
        waitMs: int = 0

    class StopAck(Extension):
        """Version 2, both eras."""

        identifier = NAME

        def __init__(self):
            self.calls = Calls()

        def settings(self):
            return {"notify": True, "await": True}

        def methods(self):
            async def wait(ctx, params):
                return await self.calls.wait(params.token, params.waitMs / 1000)

            return [MethodBinding("stop-ack/await", AwaitParams, wait)]

        async def intercept_tool_call(self, params, ctx, call_next):
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS  # may be sent nothing more
            notify = None if modern else functools.partial(ctx.session.send_notification, related_request_id=ctx.request_id)
            return await self.calls.watch(_token(ctx.meta), ctx.request_id, lambda: call_next(ctx), notify)
