# Built in two stages: the locked dependencies and our wheel in the first, nothing but Python and them in the second.
# The base image carries the Python that the lock files were resolved for.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements/runtime.lock requirements/
RUN python -m venv /opt/dra-extender \
 && /opt/dra-extender/bin/pip install --no-cache-dir --require-hashes -r requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY manifests/samples manifests/samples
RUN python -m venv /tmp/builder \
 && /tmp/builder/bin/pip install --no-cache-dir build hatchling \
 && /tmp/builder/bin/python -m build --wheel --no-isolation --outdir /tmp/dist \
 && /opt/dra-extender/bin/pip install --no-cache-dir --no-deps /tmp/dist/*.whl \
 && /opt/dra-extender/bin/python -m compileall -q /opt/dra-extender

FROM python:3.13-slim
LABEL org.opencontainers.image.title="dra-extender" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/dra-extender /opt/dra-extender
ENV PATH=/opt/dra-extender/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["dra-extender"]
CMD ["serve"]
