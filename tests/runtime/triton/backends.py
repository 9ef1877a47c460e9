"""A stand-in for triton_python_backend_utils and for requests, as the Python backend's stub has them."""

import json
from threading import Event, Lock

import numpy as np

from dsv4_trt.runtime.triton.answers import DTYPES
from dsv4_trt.runtime.triton.tensors import INPUT_TYPES, OUTPUTS

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
LOGGED = []


class TritonModelException(Exception):
    pass


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED = range(6)

    def __init__(self, message, code=UNKNOWN):
        self.message, self.code = message, code


class Logger:
    log_info = log_error = staticmethod(LOGGED.append)


class Metric:
    def __init__(self):
        self.value = 0

    def set(self, value):
        self.value = value

    def increment(self, change):
        assert change > 0
        self.value += change


class MetricFamily:
    """Metrics by their labels; those of all families in `METRICS`."""

    COUNTER, GAUGE = range(2)

    def __init__(self, name, description, kind):
        self._name = name

    def Metric(self, labels):
        key = (self._name, *(f"{name}={value}" for name, value in labels.items()))
        return METRICS.setdefault(key, Metric())


METRICS = {}


class Tensor:
    def __init__(self, name, array):
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.tensors, self.error = output_tensors, error


class Sender:
    """Collects responses; refuses what would kill the real front end."""

    def __init__(self):
        self.responses, self.ended, self.leaves = [], Event(), False
        self._sending = Lock()

    def send(self, response=None, flags=0):
        assert self._sending.acquire(blocking=False), "two threads send at once"
        assert not self.ended.is_set(), "a response after the end"
        if response is not None:
            self.responses.append(response)
        self._sending.release()
        if flags:
            self.ended.set()

    def is_cancelled(self):
        assert not self.ended.is_set(), "asked after the end"
        return self.leaves


class Request:
    """An `InferenceRequest`: tensors as lists or arrays, typed as config.pbtxt says."""

    def __init__(self, request_id="", wanted=None, timeout=0, parameters=None, **tensors):
        self._id, self._timeout = request_id, timeout
        self._parameters = json.dumps(parameters or {})
        self._wanted = list(OUTPUTS) if wanted is None else wanted
        self._tensors = [Tensor(name, as_tensor(name, value)) for name, value in tensors.items()]
        self.sender = Sender()

    def inputs(self):
        return self._tensors

    def request_id(self):
        return self._id

    def parameters(self):
        return self._parameters

    def requested_output_names(self):
        return self._wanted

    def timeout(self):
        return self._timeout

    def get_response_sender(self):
        return self.sender

    def wait(self):
        assert self.sender.ended.wait(60), "the request does not end"
        return self

    @property
    def answers(self):
        """The tensors of each response, as lists."""
        self.wait()
        for response in self.sender.responses:
            assert response.error is None, response.error.message
        return [{t.name(): listed(t.as_numpy()) for t in r.tensors} for r in self.sender.responses]

    @property
    def error(self):
        self.wait()
        (response,) = self.sender.responses
        return response.error


def as_tensor(name, value):
    """An array of the dtype that the model's config promises; texts as bytes, one value as `[1]`."""
    dtype = DTYPES[INPUT_TYPES.get(name, "TYPE_STRING")]
    array = np.array(value if isinstance(value, list) else [value], dtype=dtype)
    if dtype is np.object_:
        flat = [v.encode() if isinstance(v, str) else v for v in array.reshape(-1)]
        array = np.array(flat, dtype=dtype).reshape(array.shape)
    return array


def listed(array):
    def plain(value):
        return (
            [plain(v) for v in value]
            if isinstance(value, list)
            else (value.decode() if isinstance(value, bytes) else value)
        )

    return plain(array.tolist())
