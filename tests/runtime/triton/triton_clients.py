"""Clients of a `TritonServer`: plain HTTP, and tritonclient's gRPC streams."""

import json
import queue
from contextlib import contextmanager
from time import monotonic, sleep
from urllib.request import Request, urlopen

import tritonclient.grpc
from tritonclient.utils import np_to_triton_dtype

from tests.runtime.triton.backends import as_tensor


@contextmanager
def post(server, path, timeout=60, **body):
    request = Request(f"http://{server.http}/v2/models/{path}", json.dumps(body).encode())
    with urlopen(request, timeout=timeout) as answer:
        yield answer


def generate(server, model="tensorrt_llm", **body):
    with post(server, f"{model}/generate", **body) as answer:
        return json.load(answer)


def events(answer):
    """The JSON of each event of a stream."""
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


class Stream:
    """A gRPC stream; answers come by request id."""

    def __init__(self, server):
        self.client = tritonclient.grpc.InferenceServerClient(server.grpc)
        self.answers = queue.SimpleQueue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def ask(self, request_id="", model="tensorrt_llm", **tensors):
        inputs = []
        for name, value in tensors.items():
            array = as_tensor(name, value)
            kind = np_to_triton_dtype(array.dtype)
            inputs.append(tritonclient.grpc.InferInput(name, array.shape, kind))
            inputs[-1].set_data_from_numpy(array)
        self.client.async_stream_infer(
            model, inputs, request_id=request_id, enable_empty_final_response=True
        )

    def next(self):
        result, error = self.answers.get(timeout=60)
        if error is not None:
            raise error
        response = result.get_response()
        tensors = {
            output.name: result.as_numpy(output.name).tolist() for output in response.outputs
        }
        return response.id, tensors, response.parameters["triton_final_response"].bool_param

    def rest(self, count):
        """All tensors by request id, until so many requests have ended."""
        found = {}
        while count:
            request_id, tensors, is_last = self.next()
            found.setdefault(request_id, []).extend([tensors] if tensors else [])
            count -= is_last
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream(cancel_requests=True)
        self.client.close()


def eventually(is_so, seconds=20):
    end = monotonic() + seconds
    while not is_so():
        assert monotonic() < end, "it does not come to that"
        sleep(0.05)
