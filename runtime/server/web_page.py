"""The web page: the files of `web/`, read once, and nothing else of the disk.

No file is made from a request's path: each has a route of its own, and what has none is not found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter, Request, Response

FOLDER = Path(__file__).parent / "web"
PAGE = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# scripts, styles and requests of this server alone; no text ever becomes HTML or script
POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "object-src 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Cache-Control": "no-cache",  # kept, but asked for each time: all files are of one version
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def routes() -> APIRouter:
    """`/` is the page, `/web/NAME` each file that it needs; GET and HEAD."""
    router = APIRouter(include_in_schema=False)
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in TYPES:
            address = "/" if path.name == PAGE else f"/web/{path.name}"
            serve = _serve(path.read_bytes(), TYPES[path.suffix])
            router.add_api_route(address, serve, methods=["GET", "HEAD"])
    return router


def _serve(body: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """What answers with `body`, or with 304 where the client has it."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**HEADERS, "ETag": etag}

    async def serve(request: Request) -> Response:
        if _has(request.headers.get("If-None-Match", ""), etag):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)

    return serve


def _has(known: str, etag: str) -> bool:
    """Whether an If-None-Match header names this tag; a proxy may have made it a weak one."""
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return bool(tags & {etag, "*"})
