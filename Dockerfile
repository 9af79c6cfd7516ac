# A service of recommendations. CPU: docker build -t cdr-zoo:cpu .
# CUDA: docker build -t cdr-zoo:cuda --build-arg TORCH_INDEX=https://pypi.org/simple .
FROM python:3.11-slim-bookworm

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

WORKDIR /app
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE constraints.txt ./
COPY zoo ./zoo
COPY datamodules ./datamodules
COPY callbacks ./callbacks
COPY configs ./configs
RUN pip install --no-cache-dir --extra-index-url "${TORCH_INDEX}" ".[serve]" -c constraints.txt \
    && useradd --create-home --uid 10001 zoo
USER 10001
EXPOSE 8000
# Mount a run, a bundle or a folder with a link to one at /model; set ZOO_API_KEY to require a key.
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["python", "-m", "zoo", "serve"]
CMD ["/model", "--host", "0.0.0.0"]
