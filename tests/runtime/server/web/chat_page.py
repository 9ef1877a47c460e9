"""What a reader does on the page, in the words of its labels."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.runtime.server.web.fake_api import FakeApi


class ChatPage:
    """The page of a browser, and what it logged and asked for."""

    def __init__(self, page: Page, api: FakeApi) -> None:
        self.page, self.api = page, api
        self.errors: list[str] = []
        self.addresses: list[str] = []
        self._listeners = {
            "pageerror": lambda error: self.errors.append(str(error)),
            "console": self._note,
            "request": lambda request: self.addresses.append(request.url),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)
        page.goto(api.url)
        expect(page.locator("#state-text")).not_to_have_text("connecting")

    def _note(self, message) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def close(self) -> None:
        """No script failed, nothing broke the page's policy, nothing was asked of another host."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        assert self.errors == []
        hosts = (self.api.url, "blob:", "data:")
        assert [url for url in self.addresses if not url.startswith(hosts)] == []

    @property
    def prompt(self):
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def turns(self):
        return self.page.locator(".turn")

    @property
    def answer(self):
        """The last answer."""
        return self.page.get_by_role("article", name="Answer").last

    def button(self, name, within=None):
        return (within or self.page).get_by_role("button", name=name, exact=True)

    def field(self, label):
        return self.page.get_by_label(label, exact=True)

    def send(self, text) -> None:
        self.prompt.fill(text)
        self.prompt.press("Enter")

    def ask(self, text):
        """Send, and wait until the answer is finished; the answer."""
        self.send(text)
        return self.finished()

    def finished(self):
        expect(self.button("Send")).to_be_visible()
        expect(self.answer.locator("dl")).to_be_visible()
        return self.answer

    def markdown(self, text, pieces=None) -> str:
        """The HTML that the page makes of a text that comes in these pieces."""
        script = """async (pieces) => {
            const { MarkdownView } = await import("/web/markdown.js");
            const root = document.createElement("div");
            const view = new MarkdownView(root);
            pieces.forEach((piece) => view.push(piece));
            view.finish();
            return root.innerHTML;
        }"""
        return self.page.evaluate(script, pieces or [text])
