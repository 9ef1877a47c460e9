from __future__ import annotations

import pytest

from dsv4_trt.runtime.chat.markup import Markup


@pytest.fixture(scope="session")
def markup(tokenizer):
    return Markup.resolve(tokenizer)
