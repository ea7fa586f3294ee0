"""Finds causal language models, loads each once in this process, shares it, and streams its tokens.

``shared.shared_model(ref)`` is the way in. The first model that is loaded brings in torch and transformers.
"""
