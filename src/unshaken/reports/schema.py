"""`unshaken.schema` under its former name."""

from unshaken.schema import decode, encode

__all__ = ["decode", "encode"]
