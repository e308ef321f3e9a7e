"""Running the index on this machine, until it is told to stop."""

from __future__ import annotations

import copy
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from downstream.errors import UsageError
from downstream.index.folder import existing
from downstream.index.public import PublicIndex

GRACE = 5  # seconds that downloads under way get to finish


def serve(
    root: Path,
    upstream: PublicIndex | None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    verbose: bool = False,
    ready: Callable[[str], None],
) -> None:
    """Serve the index at *root* until SIGTERM or ^C; *ready* is told its URL once it listens.

    ^C leaves as KeyboardInterrupt, SIGTERM returns. Raises UsageError where
    *host* and *port* cannot be had.
    """
    import uvicorn

    from downstream.index.application import application

    app = application(existing(root), upstream)
    with _listening(host, port) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="info" if verbose else "warning",
                access_log=verbose,
                log_config=_logging(),
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )

        def stop(*_: object) -> None:
            # Before uvicorn listens to signals, this is how it learns of one. Afterwards it gives the signal back
            # to whoever had it before: for SIGTERM that must not be the default, death.
            server.should_exit = True

        signal.signal(signal.SIGTERM, stop)
        ready(url_of(listener))
        server.run(sockets=[listener])


def _logging() -> dict[str, Any]:
    # uvicorn writes its access log to stdout, which is for the answer: here the URL.
    from uvicorn.config import LOGGING_CONFIG

    settings = copy.deepcopy(LOGGING_CONFIG)
    settings["handlers"]["access"]["stream"] = "ext://sys.stderr"
    return settings


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as exc:
        listener.close()
        raise UsageError(f"{host}:{port}", str(exc), "choose another --host or --port (0: any free one)") from exc
    return listener


def url_of(listener: socket.socket) -> str:
    """Return what a client gives as its index URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/simple/" if listener.family == socket.AF_INET6 else f"http://{host}:{port}/simple/"
