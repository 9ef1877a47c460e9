"""The page's files as they are served: these and nothing else, with their headers, from this host alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dsv4_trt.runtime.server import web_page

FOLDER = Path(web_page.__file__).parent / "web"
FILES = sorted(path.name for path in FOLDER.iterdir())
TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}


@pytest.fixture(scope="module")
def client():
    app = FastAPI()
    app.include_router(web_page.routes())
    return TestClient(app)


def address(name):
    return "/" if name == "index.html" else f"/web/{name}"


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_served_as_it_is(client, name):
    answer = client.get(address(name))
    assert answer.status_code == 200
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers["content-type"].split(";")[0] == TYPES[name.rpartition(".")[2]]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    head = client.head(address(name))
    assert (head.content, head.headers["etag"]) == (b"", answer.headers["etag"])


def test_what_the_client_has_is_not_sent_again(client):
    etag = client.get("/").headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = client.get("/", headers={"If-None-Match": known})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.get("/web/main.js").headers["etag"] != etag


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/web",
        "/web/",
        "/web/index.html",
        "/web/nothing.js",
        "/web/../web_page.py",
        "/web/..%2fweb_page.py",
        "/web/%2e%2e/web_page.py",
        "/web/%2fetc%2fpasswd",
        "/web//etc/passwd",
        "/web/main.js/",
        "/web/main.js%00",
    ],
)
def test_nothing_else_of_the_disk(client, path):
    assert client.get(path, follow_redirects=False).status_code in (307, 404)
    assert client.get(path).status_code == 404 or path == "/web/main.js/"


def test_the_page_is_not_part_of_the_api(client):
    assert client.get("/openapi.json").json()["paths"] == {}
    assert client.post("/").status_code == 405


def test_all_that_the_page_names_is_served_and_preloaded():
    page = (FOLDER / "index.html").read_text("utf-8")
    named = set(re.findall(r'(?:src|href)="web/([^"]+)"', page))
    assert named | {"index.html"} == set(FILES)
    for path in FOLDER.glob("*.js"):
        imported = re.findall(r'from "\./([^"]+)"', path.read_text("utf-8"))
        assert set(imported) <= set(FILES), path.name


def test_no_other_host_and_no_text_that_becomes_markup():
    never = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    )
    for path in map(FOLDER.joinpath, FILES):
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]{2,}/|@import|url\(", text), path.name
        assert not re.search(never, text), path.name
        assert not re.search(r"\sstyle=|\son[a-z]+=\"", text) or path.suffix != ".html", path.name
