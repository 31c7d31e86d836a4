"""From a few paths to what Dask needs to speak TLS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SHORT = {"ca_file": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}


def make_security(given: Any, address: str = "") -> Any:
    """Return a `distributed.Security` of an object, a dict of paths, or Dask's configuration.

    Raises
    ------
    ValueError
        When `address` wants TLS and there is no certificate to trust.
    FileNotFoundError
        When a certificate that was named is not there.
    """
    from distributed import Security

    if isinstance(given, Security):
        made = given
    elif given is None:
        made = Security()
    elif isinstance(given, Mapping):
        made = _of_paths(given)
    else:
        raise TypeError(
            f"security={given!r} is not known; give a distributed.Security or a dict of paths: "
            "ca_file, cert, key."
        )
    if address.startswith("tls://"):
        _require_certificates(made, address)
    return made


def _of_paths(given: Mapping[str, Any]) -> Any:
    from distributed import Security

    named = {_SHORT.get(key, key): value for key, value in given.items()}
    unknown = set(named) - set(Security.__slots__)
    if unknown:
        raise ValueError(
            f"security: {sorted(unknown)[0]!r} is not known; use the keys ca_file, cert and key."
        )
    paths = {k: str(v) if isinstance(v, Path) else v for k, v in named.items()}
    for key, path in paths.items():
        if key.startswith("tls_") and key.endswith(("file", "cert", "key")):
            _require_file(path)
    return Security(**{"require_encryption": True, **paths})


def _require_file(path: str) -> None:
    # The text of a certificate may stand for its file.
    if "\n" not in path and not Path(path).is_file():
        raise FileNotFoundError(f"security: there is no certificate or key file {path!r}.")


def _require_certificates(security: Any, address: str) -> None:
    if security.tls_ca_file is None or security.tls_client_cert is None:
        raise ValueError(
            f"{address} wants TLS and no certificates are known; pass security={{'ca_file': ..., "
            "'cert': ..., 'key': ...}, or set distributed.comm.tls.ca-file, .client.cert and "
            ".client.key in Dask's configuration."
        )
