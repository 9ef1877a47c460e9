# An image that runs `dsv4-trt`. Not built by this project's CI, which has no Docker daemon.
#
#   docker build -t dsv4-trt .
#   docker run --rm --gpus all -v /models:/models dsv4-trt doctor
#
# The default torch wheel brings the CUDA libraries it needs, so that a plain Python base is enough; the
# host needs an NVIDIA driver and the container toolkit. For a small CPU image:
#
#   docker build --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu -t dsv4-trt:cpu .
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ARG TORCH_INDEX_URL=
COPY pyproject.toml /tmp/install/
COPY scripts/install_torch.sh /tmp/install/scripts/
COPY --from=wheel /wheels /tmp/install/wheels
RUN python -m venv /opt/dsv4-trt \
    && if [ -n "$TORCH_INDEX_URL" ]; then bash /tmp/install/scripts/install_torch.sh /opt/dsv4-trt/bin/python; fi \
    && /opt/dsv4-trt/bin/pip install --no-cache-dir /tmp/install/wheels/*.whl \
    && rm -rf /tmp/install \
    && useradd --create-home dsv4
ENV PATH=/opt/dsv4-trt/bin:$PATH
USER dsv4
WORKDIR /home/dsv4
ENTRYPOINT ["dsv4-trt"]
CMD ["--help"]
