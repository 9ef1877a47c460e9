"""The V4 tokenizer: `tokenizer.json` through the tokenizers library, and the bytes behind each token.

Text is encoded as it stands: no token is put in front of it or behind it, and markers in
it, such as `<think>`, become their ids. Whoever builds prompts writes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from dsv4_trt.contract import TOKENIZER_FILES
from dsv4_trt.errors import BundleMismatch, CheckpointError, RequestError
from dsv4_trt.runtime.text.surrogates import check_unicode

TOKENIZER_FILE = TOKENIZER_FILES[0]


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level BPE vocabulary, inverted.

    Printable Latin-1 stands for itself, the other bytes are counted from U+0100 on (GPT-2).
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(shifted)}


_BYTE_OF = _byte_alphabet()


class Tokenizer:
    """Text to token ids and back; immutable once loaded."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        self.vocab_size = library.get_vocab_size(with_added_tokens=True)
        added = library.get_added_tokens_decoder()
        self.added_ids = frozenset(added)  # markers: matched whole in a text, never merged
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.markup_ids = self.added_ids - self.special_ids  # shown, unlike special ones

    @staticmethod
    def load(directory: Path) -> Tokenizer:
        """Read `tokenizer.json` of a checkpoint or bundle; `CheckpointError` if it can not be used."""
        path = directory / TOKENIZER_FILE
        _check_file(path)
        try:
            library = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(
                f"{path} is no tokenizer that the tokenizers library "
                f"{tokenizers.__version__} can read: {error}; copy the file of the release again"
            ) from error
        library.no_truncation()
        library.no_padding()
        return Tokenizer(library)

    def check_covers(self, vocab_size: int) -> None:
        """Raise `BundleMismatch` if a model of this vocabulary can put out an id without text."""
        for token_id in range(vocab_size):
            if self._library.id_to_token(token_id) is None:
                raise BundleMismatch(
                    f"the model has {vocab_size} token ids and the tokenizer has no token {token_id}; "
                    "use the tokenizer that belongs to the model"
                )

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; `RequestError` where it is not valid Unicode."""
        check_unicode(text)
        return list(self._library.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, with markers in it taken for the text that they are.

        Lets other Python threads run meanwhile. Raises `RequestError` as `encode` does.
        """
        for text in texts:
            check_unicode(text)
        found = self._plain.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in found]

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """The same tokenizer without its added tokens; takes about a second to make."""
        data = json.loads(self._library.to_str())
        return tokenizers.Tokenizer.from_str(json.dumps(data | {"added_tokens": []}))

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD."""
        kept = (i for i in token_ids if not (skip_special and i in self.special_ids))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes of one token, which may begin or end inside a character."""
        token = self._library.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        if token is None:
            raise RequestError(
                f"token id {token_id} is not in the tokenizer, whose ids are 0 to "
                f"{self.vocab_size - 1}"
            )
        try:
            return bytes(_BYTE_OF[char] for char in token)
        except KeyError:  # an added token, spelled as it is
            return token.encode("utf-8")


def _check_file(path: Path) -> None:
    """The file is there, is JSON, and decodes the way `token_bytes` does."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is missing; copy tokenizer.json of the release into {path.parent}"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} can not be read: {error}; copy the file of the release again"
        ) from error
    decoder = data.get("decoder") if isinstance(data, dict) else None
    kind = decoder.get("type") if isinstance(decoder, dict) else None
    if kind != "ByteLevel":
        raise CheckpointError(
            f"{path} has a decoder of type {kind!r}; expected 'ByteLevel', which every DeepSeek-V4 "
            "tokenizer has; use the tokenizer.json of the release"
        )
