"""The server's Flower process: a SuperLink of which outsiders reach only what clients need.

`python -P link.py ...` with the arguments of `flower-superlink`, as a plain file. Flower serves clients, the commands
of operators and its own apps on one port, and asks operators for nothing: whoever reaches the port could start a run,
which is code on the server, or register a key. So everything but the clients' part is answered to this machine only.
"""

import argparse
import asyncio
import logging
import sys
from typing import Any

CLIENTS, APPS = "/v1/fleet/", "/v1/runtime/"
PUBLIC_KEY = "flwr-public-key"  # the header with a client's key
REQUEST_LIMIT = 32 * 2**20  # Flower sends arrays in pieces of 5 MB
SLACK = 2**24


class Door:
    """Lets clients in to what is theirs, and this machine to everything; and bounds what one reply may weigh."""

    def __init__(self, app: Any, limit: int) -> None:
        self.app, self.limit = app, 2 * limit + SLACK  # a piece may come twice, if the first answer was lost
        self.weight: dict[bytes, int] = {}
        self.turn = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        here = _from_this_machine(scope)
        headers = dict(scope["headers"])
        size = int(headers.get(b"content-length", b"-1"))
        path = scope["path"]
        if not path.startswith(CLIENTS):
            if not here:
                logging.getLogger("fedloom").warning("fedloom: %s was refused to %s.", path, scope["client"][0])
                return await _refuse(send, 404)
            if path.startswith(APPS):
                return await self._in_turn(scope, receive, send)
            return await self.app(scope, receive, send)
        if size < 0 and scope["method"] == "POST":
            return await _refuse(send, 411)
        key = headers.get(PUBLIC_KEY.encode(), b"")
        if path == CLIENTS + "push-messages":
            self.weight.pop(key, None)
        if size > REQUEST_LIMIT or self.weight.get(key, 0) + size > self.limit:
            logging.getLogger("fedloom").warning("fedloom: a reply from %s is too large.", scope["client"][0])
            return await _refuse(send, 413)

        async def weigh(event: Any) -> None:
            # Only what Flower has accepted, and with it the key's signature, counts for that key.
            if event["type"] == "http.response.start" and event["status"] == 200 and path.endswith("/push-object"):
                self.weight[key] = self.weight.get(key, 0) + size
            await send(event)

        await self._in_turn(scope, receive, weigh)

    async def _in_turn(self, scope: Any, receive: Any, send: Any) -> None:
        """One request at a time: each writes to Flower's database, and those that meet there wait for much longer.

        What a slow connection sends is read before its turn, and what it gets is sent afterwards.
        """
        came, answer = [await receive()], []
        while came[-1].get("more_body"):
            came.append(await receive())
        came.reverse()

        async def again() -> Any:
            return came.pop() if came else await receive()

        async def collect(event: Any) -> None:
            answer.append(event)

        async with self.turn:
            await self.app(scope, again, collect)
        for event in answer:
            await send(event)


def _from_this_machine(scope: Any) -> bool:
    """Does the request come from a loopback address, or from the very address at which it arrived?"""
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    host = client[0].removeprefix("::ffff:")
    return host.startswith("127.") or host == "::1" or bool(server and host == str(server[0]).removeprefix("::ffff:"))


async def _refuse(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--limit", type=int, default=2**30)
    options, rest = parser.parse_known_args()
    sys.argv = ["flower-superlink", *rest]
    logging.getLogger("uvicorn.access").addFilter(lambda record: False)  # a line for each of many small requests

    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    others = getattr(extensions, "get_middleware", None)
    if others is None or FLEET_HTTP_PUBLIC_KEY_HEADER.lower() != PUBLIC_KEY:
        raise SystemExit("fedloom: this version of Flower has no place for a door; use flwr>=1.41,<1.43.")
    extensions.get_middleware = lambda: (Middleware(Door, limit=options.limit), *others())
    flower_superlink()


if __name__ == "__main__":
    main()
