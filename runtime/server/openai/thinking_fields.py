"""Whether the model thinks before it answers, and how hard: the dialects' ways to say it, made one."""

from __future__ import annotations

from typing import Literal

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.body import Body
from dsv4_trt.runtime.server.chat_turn import AskedEffort, Effort, v4_effort


class Thinking(Body):
    """DeepSeek's switch."""

    type: Literal["enabled", "disabled"]


class TemplateArguments(Body):
    """What clients give the chat templates of other servers."""

    thinking: bool | None = None
    enable_thinking: bool | None = None
    reasoning_effort: AskedEffort | None = None


class ThinkingFields(Body):
    """Thinking is on unless one of these says no."""

    thinking: Thinking | None = None
    reasoning_effort: AskedEffort | None = None
    chat_template_kwargs: TemplateArguments | None = None

    def thinks(self) -> bool:
        """Whether to think; `RequestError` where two fields contradict each other."""
        said = self._said()
        values = set(said.values())
        if len(values) > 1:
            shown = " and ".join(
                f"{name} says {'on' if on else 'off'}" for name, on in said.items()
            )
            raise RequestError(
                f"thinking: {shown}; expected them to agree", parameter=list(said)[-1]
            )
        return values.pop() if values else True

    def effort(self) -> Effort | None:
        """V4's effort; None when not thinking, or when nothing was said."""
        return v4_effort(self._effort()) if self.thinks() else None

    def _effort(self) -> AskedEffort | None:
        template = self.chat_template_kwargs or TemplateArguments()
        return self.reasoning_effort or template.reasoning_effort

    def _said(self) -> dict[str, bool]:
        """Each field that says on or off; an effort other than none asks for no thinking by itself."""
        template = self.chat_template_kwargs or TemplateArguments()
        said = {
            "thinking": None if self.thinking is None else self.thinking.type == "enabled",
            "chat_template_kwargs.thinking": template.thinking,
            "chat_template_kwargs.enable_thinking": template.enable_thinking,
            "reasoning_effort": False if self._effort() == "none" else None,
        }
        return {name: on for name, on in said.items() if on is not None}
