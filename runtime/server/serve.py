"""Runs a server until it is told to end: engine, application, port, and the way out.

SIGTERM or SIGINT drains: `/health` turns to 503, requests that run go on for `drain_timeout` seconds, new
ones are refused; then all ends with exit code 0. A second signal ends it at once. An engine that dies
too often ends the server with an error.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
import uvloop

from dsv4_trt.errors import BundleMismatch, ConfigError, EngineFault
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.chat.markup import Markup
from dsv4_trt.runtime.server.app import make_app
from dsv4_trt.runtime.server.engine_client import EngineClient
from dsv4_trt.runtime.server.executor_process import OpenExecutor
from dsv4_trt.runtime.server.http_protocol import BoundedProtocol
from dsv4_trt.runtime.server.logs import set_up_logs
from dsv4_trt.runtime.server.open_served import open_served
from dsv4_trt.runtime.server.serve_config import ServeConfig
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.text.tokenizer import TOKENIZER_FILE, Tokenizer

POLL_SECONDS = 0.05
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048

log = logging.getLogger(__name__)


def serve(
    config: ServeConfig,
    *,
    open_executor: OpenExecutor = open_served,
    on_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a bundle; `on_ready` gets the address once requests are taken.

    Raises what keeps the engine from opening, `ConfigError` for a port that is taken, and `EngineFault`
    when the engine was lost.
    """
    set_up_logs(config)
    _raise_open_files()
    tokenizer = load_tokenizer(config)
    markup = Markup.resolve(tokenizer)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        client = EngineClient(open_executor, config)
        served = Served(
            config=config,
            client=client,
            tokenizer=tokenizer,
            markup=markup,
            model_name=config.model_name,
        )
        runner.run(_serve(served, on_ready))


def load_tokenizer(config: ServeConfig) -> Tokenizer:
    """The bundle's tokenizer, or the one named; a server can not do without."""
    folder = config.engine_dir if config.tokenizer is None else config.tokenizer
    if not (folder / TOKENIZER_FILE).exists():
        open_bundle(config.engine_dir)  # what is wrong with that folder is said first
        raise BundleMismatch(
            f"{folder} has no tokenizer.json, and a server speaks text; name a folder that has one with "
            "--tokenizer"
        )
    tokenizer = Tokenizer.load(folder)
    tokenizer.encode_plain(["the first call takes a second"])
    return tokenizer


async def _serve(served: Served, on_ready: Callable[[str], None]) -> None:
    client = served.client
    with _bind(served.config) as place:  # before the engine is opened, which takes minutes
        server = Server(served)
        try:
            await client.start()
            client.on_lost = server.give_up
            ready = asyncio.create_task(server.announce(on_ready))
            await server.serve([place])
            ready.cancel()
        finally:
            await client.stop()
    if server.lost is not None:
        raise EngineFault(f"the engine is lost: {server.lost}") from server.lost


def _bind(config: ServeConfig) -> socket.socket:
    """The port, taken and not yet open; raises `ConfigError` where it can not be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        place = socket.socket(family, kind, proto)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
    except OSError as error:
        raise ConfigError(
            f"the server can not have {config.host}:{config.port}: {error.strerror}; choose another place "
            "with --host and --port"
        ) from error
    return place


class Server(uvicorn.Server):
    """uvicorn with a drain before its end."""

    def __init__(self, served: Served) -> None:
        config = served.config
        super().__init__(
            uvicorn.Config(
                make_app(served),
                host=config.host,
                port=config.port,
                loop="none",
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=5,
            )
        )
        self.lost: Exception | None = None
        self._served = served
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: object) -> None:
        """The first signal drains, the second ends."""
        if self._served.is_draining:
            self.force_exit = self.should_exit = True
            return
        self._served.is_draining = True  # first: the second may come while this one is dealt with
        log.info("draining", extra={"signal": signal.Signals(sig).name})
        self._draining = self._loop.create_task(self._drain())

    def give_up(self, error: Exception) -> None:
        """End because the engine is lost."""
        self.lost = error
        self._served.is_draining = self.should_exit = True

    async def announce(self, on_ready: Callable[[str], None]) -> None:
        """Tell the address once the port is open."""
        while not self.started:
            await asyncio.sleep(POLL_SECONDS)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        log.info("serving", extra={"url": url, "model": self._served.model_name})
        on_ready(url)

    async def _drain(self) -> None:
        """Let what runs end, and what is left of it be cancelled, then end."""
        client = self._served.client
        with suppress(TimeoutError):
            async with asyncio.timeout(self._served.config.drain_timeout):
                while client.num_running:
                    await asyncio.sleep(POLL_SECONDS)
        if client.num_running:
            log.warning("cancelled", extra={"requests": client.num_running})
        await client.stop()
        self.should_exit = True


def _raise_open_files() -> None:
    """As many connections as the system allows: each is an open file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
