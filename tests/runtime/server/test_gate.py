"""What every request passes, around a small application."""

import asyncio
import json
import logging
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from dsv4_trt.errors import EngineFault, QueueFull, RequestError, TooLong, Unavailable
from dsv4_trt.runtime.server.error_handlers import add_error_handlers
from dsv4_trt.runtime.server.gate import Gate
from dsv4_trt.runtime.server.http_metrics import HttpMetrics
from dsv4_trt.runtime.server.serve_config import ServeConfig

ERRORS = {
    "request": RequestError("top_p is 7", parameter="top_p"),
    "long": TooLong("4097 tokens", parameter="messages"),
    "full": QueueFull("9 wait"),
    "away": Unavailable("starting", retry_after=4),
    "fault": EngineFault("secret detail"),
    "bug": ArithmeticError("secret detail"),
    "half": RequestError("a is \ud800", parameter="a\ud800"),
}


class Item(BaseModel):
    size: int
    parts: list[dict[str, int]] = []


def client(**options):
    app = FastAPI()
    add_error_handlers(app)

    @app.get("/v1/raise/{name}")
    @app.get("/v1/messages/raise/{name}")
    async def fail(name: str) -> None:
        raise ERRORS[name]

    @app.post("/v1/size")
    async def size(item: Item) -> int:
        return item.size

    @app.get("/health")
    async def health() -> str:
        return "ok"

    gate = Gate(app, ServeConfig(engine_dir=Path("e"), **options), HttpMetrics())
    transport = httpx.ASGITransport(gate, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def ask(method, path, *, options=(), **kwargs):
    async def main():
        async with client(**dict(options)) as http:
            return await http.request(method, path, **kwargs)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "status", "kind", "param", "code"),
    [
        ("request", 400, "invalid_request_error", "top_p", None),
        ("long", 400, "invalid_request_error", "messages", "context_length_exceeded"),
        ("full", 429, "rate_limit_error", None, "queue_full"),
        ("away", 503, "service_unavailable", None, "unavailable"),
        ("fault", 500, "internal_error", None, None),
        ("bug", 500, "internal_error", None, None),
        ("half", 400, "invalid_request_error", "a\\ud800", None),
    ],
)
def test_errors_in_the_shape_of_each_api(name, status, kind, param, code):
    found = ask("GET", f"/v1/raise/{name}")
    assert found.status_code == status
    error = found.json()["error"]
    assert (error["type"], error["param"], error["code"]) == (kind, param, code)
    assert "secret" not in found.text
    assert ("retry-after" in found.headers) == (status in (429, 503))
    other = ask("GET", f"/v1/messages/raise/{name}")
    assert other.status_code == status
    assert other.json()["type"] == "error"
    assert set(other.json()["error"]) == {"type", "message"}
    assert other.json()["request_id"] == other.headers["request-id"]
    assert "secret" not in other.text


@pytest.mark.parametrize(
    ("body", "param", "match"),
    [
        (b'{"size": "x"}', "size", "size is 'x'"),
        (b'{"parts": []}', "size", "size is missing"),
        (b'{"size": 1, "parts": [{"a": 1}, {"b": "c"}]}', "parts[1].b", "is 'c'"),
        (b'{"size": 1', None, "the body is no JSON"),
        (b"[1]", None, "the body is no JSON object"),
        (b"", None, "the body is missing"),
        (b"[" * 100_000, None, "nests too deep"),
        (b'{"size": "\xff"}', None, "no UTF-8"),
        (b'{"size": ' + b"9" * 5000 + b"}", None, "too many digits"),
    ],
)
def test_an_illegal_body_names_its_field(body, param, match):
    found = ask("POST", "/v1/size", content=body, headers={"content-type": "application/json"})
    assert found.status_code == 400
    assert found.json()["error"]["param"] == param
    assert match in found.json()["error"]["message"]


def test_a_form_is_told_what_to_send():
    found = ask("POST", "/v1/size", content=b'{"size": 1}', headers={"content-type": "text/plain"})
    assert found.status_code == 400
    assert "application/json" in found.json()["error"]["message"]


def test_unknown_paths_and_methods():
    assert ask("GET", "/v1/nothing").status_code == 404
    assert "/openapi.json" in ask("GET", "/v1/nothing").json()["error"]["message"]
    found = ask("GET", "/v1/size")
    assert found.status_code == 405
    assert found.headers["allow"] == "POST"
    assert found.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic secret"}, 401),
        ({"x-api-key": "secre"}, 401),
        ({"authorization": "Bearer secret"}, 200),
        ({"authorization": "bearer  secret"}, 200),
        ({"x-api-key": "secret"}, 200),
    ],
)
def test_the_api_key(headers, status):
    found = ask(
        "POST", "/v1/size", options={"api_key": "secret"}, json={"size": 3}, headers=headers
    )
    assert found.status_code == status
    if status == 401:
        assert found.json()["error"]["code"] == "invalid_api_key"
        assert found.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_key():
    assert ask("GET", "/health", options={"api_key": "secret"}).status_code == 200


def test_a_body_that_is_too_large():
    options = {"max_request_bytes": 100}
    small = ask("POST", "/v1/size", options=options, json={"size": 1})
    assert small.status_code == 200
    large = ask("POST", "/v1/size", options=options, content=b" " * 101)
    assert large.status_code == 413
    assert "101 bytes" in large.json()["error"]["message"]

    async def chunks():
        for _ in range(30):
            yield b" " * 10

    headers = {"content-type": "application/json"}
    streamed = ask("POST", "/v1/size", options=options, content=chunks(), headers=headers)
    assert streamed.status_code == 413


def test_a_body_that_does_not_come():
    async def chunks():
        yield b"{"
        await asyncio.sleep(5)

    headers = {"content-type": "application/json"}
    options = {"body_timeout": 0.05}
    found = ask("POST", "/v1/size", options=options, content=chunks(), headers=headers)
    assert found.status_code == 408
    assert "0.05 s" in found.json()["error"]["message"]


def test_request_ids_and_the_line_in_the_log(caplog):
    caplog.set_level(logging.INFO)
    given = ask("GET", "/health", headers={"x-request-id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    (record,) = [r for r in caplog.records if r.name == "dsv4_trt.access"]
    assert (record.request_id, record.path, record.status) == ("abc-1", "/health", 200)
    made = ask("GET", "/health", headers={"x-request-id": 'x" y'})
    assert made.headers["x-request-id"].startswith("req_")


def test_metrics_count_by_route():
    metrics = HttpMetrics()
    metrics.count("GET", "/v1/models", 200, 0.2)
    text = metrics.text(None).decode()
    assert 'dsv4_http_requests_total{method="GET",route="/v1/models",status="200"} 1.0' in text
    assert "_created" not in text


def test_a_json_log_line_is_one_object(capsys):
    from dsv4_trt.runtime.server.logs import JsonFormat, TextFormat

    record = logging.makeLogRecord({"msg": "a\nb", "levelname": "INFO", "path": "/x y", "n": 1})
    line = JsonFormat().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["message"], found["path"], found["n"]) == ("a\nb", "/x y", 1)
    assert TextFormat().format(record).endswith('path="/x y" n=1')
