"""Causal language models in this process: found, loaded once, shared, and streamed token by token.

``shared.shared_model(ref)`` is the way in. torch and transformers are imported when the first model is loaded.
"""
