"""Server-sent events out of the bytes of an HTTP answer, however they are cut."""

from __future__ import annotations


class EventSplitter:
    """Gives the data of each event once its blank line is there; comments and other fields are dropped.

    Line ends are LF or CR LF: bare carriage returns, which the format allows, are sent by nobody.
    """

    def __init__(self) -> None:
        self._rest = b""

    def push(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece of the stream completes."""
        if b"\r" in piece:
            piece = piece.replace(b"\r", b"")  # JSON never has one as it is
        *whole, self._rest = (self._rest + piece).split(b"\n\n")
        return [data for event in whole if (data := _data(event)) is not None]


def _data(event: bytes) -> bytes | None:
    if event.startswith(b"data:") and b"\n" not in event:
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
