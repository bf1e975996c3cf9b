"""Start the OpenAI-compatible server of llama.cpp with the model of a replica."""

from __future__ import annotations

import os
import threading

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = f"{os.environ['BAI_MODEL_PATH']}/model.gguf"
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(os.environ["BAI_SERVICE_PORT"])
parameters.n_parallel = 1
parameters.n_threads_http = 2
parameters.cpuparams.n_threads = 1
parameters.warmup = False
server = xllamacpp.Server(parameters)
threading.Event().wait()
