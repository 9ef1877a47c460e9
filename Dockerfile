# An image that runs `dsv4-trt`. Not built by this project's CI, which has no Docker daemon.
#
#   docker build -t dsv4-trt .
#   docker run --rm --gpus all -v /models:/models dsv4-trt doctor
#   docker run --rm --gpus all -v /models:/models -p 8000:8000 dsv4-trt serve --engine_dir /models/engine --host 0.0.0.0
#
# Kernels are compiled in a stage of their own, for the architectures in ARCH; the image ships the library. The
# default torch wheel brings the CUDA libraries it needs, so that a plain Python base is enough; the host
# needs an NVIDIA driver and the container toolkit. For a small CPU image, without kernels:
#
#   docker build --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu --build-arg ARCH= -t dsv4-trt:cpu .
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS kernels
ARG ARCH=sm_90a
RUN apt-get update && apt-get install -y --no-install-recommends cmake ninja-build python3
WORKDIR /source
COPY . .
# table_header needs nothing but the standard library
RUN mkdir /kernels \
    && if [ -n "$ARCH" ]; then \
        cmake -S plugins -B /build -G Ninja \
            -DCMAKE_CUDA_ARCHITECTURES="$(echo "$ARCH" | sed 's/sm_\([^,]*\)/\1-real/g; s/,/;/g')" \
        && cmake --build /build && cp /build/libdsv4_plugins.so /kernels/; \
    fi

FROM python:3.12-slim
ARG TORCH_INDEX_URL=
COPY pyproject.toml /tmp/install/
COPY scripts/install_torch.sh /tmp/install/scripts/
COPY --from=wheel /wheels /tmp/install/wheels
RUN python -m venv /opt/dsv4-trt \
    && if [ -n "$TORCH_INDEX_URL" ]; then bash /tmp/install/scripts/install_torch.sh /opt/dsv4-trt/bin/python; fi \
    && /opt/dsv4-trt/bin/pip install --no-cache-dir "$(echo /tmp/install/wheels/*.whl)[cuda,serve]" \
    && rm -rf /tmp/install \
    && useradd --create-home dsv4
COPY --from=kernels /kernels /opt/dsv4-trt/kernels
ENV PATH=/opt/dsv4-trt/bin:$PATH
ENV DSV4_PLUGIN_LIBRARY=/opt/dsv4-trt/kernels/libdsv4_plugins.so
USER dsv4
WORKDIR /home/dsv4
EXPOSE 8000
ENTRYPOINT ["dsv4-trt"]
CMD ["--help"]
