"""The endpoint: OpenAI's chat completions and responses and Anthropic's messages, each answered by a run."""
