"""Whether an answer comes as a stream, and what the stream says besides."""

from __future__ import annotations

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.body import Body


class StreamOptions(Body):
    """Token counts: in a last chunk of their own, or in every chunk as well."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class StreamFields(Body):
    """Streaming."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None

    def check_stream(self) -> None:
        """Raise `RequestError` for options of a stream without one."""
        if self.stream_options is not None and not self.stream:
            raise RequestError(
                "stream_options is given and stream is not true; expected both or neither",
                parameter="stream_options",
            )
