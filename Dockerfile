# syntax=docker/dockerfile:1
# The service with DuckDB and the driver of PostgreSQL, of exactly the packages in requirements-image.lock.
# To pin the base as well: docker build --build-arg BASE=python:3.12-slim-bookworm@sha256:…
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/delvec
COPY requirements-image.lock ./
RUN /opt/delvec/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY kernel/ kernel/
COPY clients/ clients/
COPY service/ service/
COPY migrations/ migrations/
RUN /opt/delvec/bin/pip install --no-cache-dir --no-deps --no-build-isolation .
RUN /opt/delvec/bin/pip check && /opt/delvec/bin/delvec --version

FROM ${BASE}
LABEL org.opencontainers.image.title="Delvec" \
      org.opencontainers.image.description="A metadata and transaction service for Delta Lake tables with deletion vectors" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 delvec \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin delvec \
 && install -d -o 10001 -g 10001 /data
COPY --from=build /opt/delvec /opt/delvec
# All that is written goes to /tmp and to where tables lie, so that the root may be read-only.
ENV PATH=/opt/delvec/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    DELVEC_HOST=0.0.0.0 \
    DELVEC_PORT=8710
USER 10001:10001
EXPOSE 8710
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['DELVEC_PORT'] + '/livez', timeout=4)"]
ENTRYPOINT ["delvec"]
CMD ["serve"]
