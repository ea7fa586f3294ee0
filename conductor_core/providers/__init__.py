"""How a server of models is reached: transport, streams, error replies, and the files that name models."""
