"""The folder in which several delegates keep what they compiled."""

from collections.abc import Mapping


def serialized(folder: str, token: str) -> Mapping[str, str]:
    """Return the flags that make a delegate keep what it compiles; ``token`` names the model in the folder."""
    return {"delegate_serialize_dir": folder, "delegate_serialize_token": token}
