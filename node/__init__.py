"""The server: the only package that runs trio, where all parts are put together."""
