# The inspector with its embedded Conductor and the rehearsal pool: no key, no GPU, no download at run time.
#   docker build -t conductor-inspector .
#   docker run -p 127.0.0.1:8501:8501 -v conductor-data:/data conductor-inspector
FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /venv
# The CPU build of torch: the CUDA build would add several gigabytes that this image cannot use.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /build
COPY pyproject.toml setup.py constraints.txt README.md LICENSE app.py ./
COPY .streamlit .streamlit
COPY conductor_core conductor_core
COPY storage storage
COPY pages pages
# This image neither trains nor evaluates.
RUN /venv/bin/pip install --extra-index-url "$TORCH_INDEX" -c constraints.txt '.[privacy]'
# The base of the Conductor small, where the network has it; the Models page can fetch it later.
RUN CONDUCTOR_DATA_FOLDER=/venv/share/conductor-inspector /venv/bin/conductor models pull small --quiet 2>/dev/null \
    && chmod -R a+rX /venv/share/conductor-inspector || true

FROM python:3.11-slim
# llama.cpp needs the system's OpenMP.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 10001 inspector && mkdir /data && chown inspector /data
COPY --from=build /venv /venv
USER inspector
ENV PATH=/venv/bin:$PATH CONDUCTOR_DATA_FOLDER=/data HF_HOME=/data/huggingface PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
# Inside the container it must listen on all interfaces; publish the port on 127.0.0.1 as above.
# Published under a name, as behind a reverse proxy: docker run -e CONDUCTOR_ALLOWED_HOSTS=NAME ...
CMD ["conductor", "ui", "--host", "0.0.0.0"]
