# Built in two stages: the locked dependencies and our wheel in the first, nothing but Python and them in the second.
# The base image carries the Python that the lock files were resolved for. Its digest, that of the index for all
# platforms, decides; the tag is for people. A newer one: docker buildx imagetools inspect python:3.13-slim
ARG BASE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
FROM ${BASE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements/build.lock requirements/runtime.lock requirements/
RUN pip install --require-hashes -r requirements/build.lock \
 && python -m venv --without-pip /opt/dra-extender \
 && pip --python /opt/dra-extender install --require-hashes -r requirements/runtime.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY app app
COPY manifests/samples manifests/samples
# The wheel is the one that everybody installs; a service needs neither the demo nor the embedded cluster.
RUN python -m hatchling build -t wheel -d /tmp/dist \
 && pip --python /opt/dra-extender install --no-index --no-deps /tmp/dist/*.whl \
 && cd /opt/dra-extender/lib/python3*/site-packages \
 && rm -r embedded_cluster

FROM ${BASE}
LABEL org.opencontainers.image.title="dra-extender" \
      org.opencontainers.image.source="https://github.com/dra-extender/dra-extender" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/dra-extender /opt/dra-extender
ENV PATH=/opt/dra-extender/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["dra-extender"]
CMD ["serve"]
