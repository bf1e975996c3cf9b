"""Runtime variants: programs that serve models, with default command, port and health path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Variables for the command of a replica: the port on which to listen, and the path of the model.
PORT_VARIABLE = "BAI_SERVICE_PORT"
MODEL_VARIABLE = "BAI_MODEL_PATH"
# Variable with the port for metrics, for variants with a separate port.
METRICS_PORT_VARIABLE = "BAI_METRICS_PORT"
_METRICS_PORT = f'"${METRICS_PORT_VARIABLE}"'
_PORT, _MODEL = f'"${PORT_VARIABLE}"', f'"${MODEL_VARIABLE}"'
# Default for language models, which take long to load.
_LLM_START_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the command, for the form in the web UI; ``kind``: text, number or switch."""

    option: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True)
class Variant:
    """A runtime variant.

    ``command``: "" if the endpoint must set it. ``metrics_path``: path of the runtime's metrics in
    Prometheus's text format, "" if it has no metrics. ``metrics_port``: port of the metrics, 0: the
    port of requests. ``metrics``: names of metrics by meaning. ``is_tested``: false if the variant
    has not been run with bai-hub.
    """

    name: str
    title: str
    command: str
    port: int
    health_path: str
    start_seconds: int
    arguments: tuple[Argument, ...] = ()
    metrics: Mapping[str, str] | None = None
    metrics_path: str = "/metrics"
    metrics_port: int = 0
    uses_definition: bool = False
    is_tested: bool = False


_CONTEXT = Argument("--max-model-len", "number", "Maximum length of the context in tokens")
_PARALLEL = Argument("--tensor-parallel-size", "number", "Number of GPUs for one replica")

VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(
            "custom",
            "Model definition",
            "",
            8080,
            "/health",
            60,
            uses_definition=True,
            is_tested=True,
        ),
        Variant("cmd", "Own command", "", 8080, "/", 60, is_tested=True),
        Variant(
            "vllm",
            "vLLM",
            f"vllm serve {_MODEL} --host 127.0.0.1 --port {_PORT}",
            8000,
            "/health",
            _LLM_START_SECONDS,
            (
                _CONTEXT,
                _PARALLEL,
                Argument("--gpu-memory-utilization", "number", "Share of the GPU memory, 0 to 1"),
                Argument("--served-model-name", "text", "Name of the model in requests"),
            ),
            {
                "tokens": "vllm:generation_tokens_total",
                "running": "vllm:num_requests_running",
                "waiting": "vllm:num_requests_waiting",
                "cache_use": "vllm:kv_cache_usage_perc",
            },
        ),
        Variant(
            "sglang",
            "SGLang",
            f"python3 -m sglang.launch_server --model-path {_MODEL} --host 127.0.0.1 "
            f"--port {_PORT}",
            9001,
            "/health",
            _LLM_START_SECONDS,
            (
                Argument("--context-length", "number", "Maximum length of the context in tokens"),
                Argument("--tp-size", "number", "Number of GPUs for one replica"),
            ),
            {"tokens": "sglang:generation_tokens_total", "running": "sglang:num_running_reqs"},
        ),
        Variant(
            "huggingface-tgi",
            "Text Generation Inference",
            f"text-generation-launcher --model-id {_MODEL} --hostname 127.0.0.1 --port {_PORT}",
            3000,
            "/info",
            _LLM_START_SECONDS,
            (
                Argument("--max-input-tokens", "number", "Maximum length of the input in tokens"),
                Argument("--num-shard", "number", "Number of GPUs for one replica"),
            ),
            {"running": "tgi_batch_current_size", "waiting": "tgi_queue_size"},
        ),
        Variant(
            "nim",
            "NVIDIA NIM",
            f"NIM_SERVER_PORT={_PORT} /opt/nim/start_server.sh",
            8000,
            "/v1/health/ready",
            _LLM_START_SECONDS,
            metrics_path="/v1/metrics",
        ),
        Variant(
            "llama-cpp",
            "llama.cpp",
            f"llama-server --model {_MODEL} --host 127.0.0.1 --port {_PORT}",
            8080,
            "/health",
            _LLM_START_SECONDS,
            (
                Argument("--ctx-size", "number", "Maximum length of the context in tokens"),
                Argument("--n-gpu-layers", "number", "Number of layers on the GPU"),
                Argument("--parallel", "number", "Number of concurrent requests"),
            ),
            {"tokens": "llamacpp:tokens_predicted_total", "cache_use": "llamacpp:kv_cache_usage"},
        ),
        Variant(
            "triton",
            "Triton Inference Server",
            f"tritonserver --model-repository={_MODEL} --http-address=127.0.0.1 "
            f"--http-port={_PORT} --metrics-address=127.0.0.1 --metrics-port={_METRICS_PORT}",
            8000,
            "/v2/health/ready",
            600,
            metrics={"waiting": "nv_inference_pending_request_count"},
            metrics_port=8002,
        ),
        Variant(
            "modular-max",
            "Modular MAX",
            f"MAX_SERVE_METRICS_ENDPOINT_PORT={_METRICS_PORT} "
            f"max serve --model-path {_MODEL} --host 127.0.0.1 --port {_PORT}",
            8000,
            "/health",
            _LLM_START_SECONDS,
            (Argument("--max-length", "number", "Maximum length of the context in tokens"),),
            metrics_port=8001,
        ),
    )
}
