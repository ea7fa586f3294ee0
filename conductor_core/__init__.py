"""Conductor Inspector's core: the workflow language, who writes workflows, who answers steps, and the engine."""

import os

# TRL tells Hugging Face of every training. This is read when huggingface_hub is imported.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"
