"""``manyhot serve``: serve a model over HTTP, with a page to try it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from manyhot.cli.io.flags import flags_of, with_flags
from manyhot.cli.io.models import ModelArgument, bundle_folder
from manyhot.serve.settings import ServeSettings

HostFlag = Annotated[
    str, typer.Option("--host", help="The address to listen on; 0.0.0.0 accepts connections from other machines.")
]
PortFlag = Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 chooses a free one.")]
WorkersFlag = Annotated[int, typer.Option("--workers", min=1, help="Number of worker processes.")]
limit_flags = with_flags("limits", flags_of(ServeSettings), panel="Limits and timing")


@limit_flags
def serve(
    model: ModelArgument,
    *,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8000,
    workers: WorkersFlag = 1,
    limits: dict[str, Any],
) -> None:
    """Serve a model over HTTP: POST /predict and /explain, /health, /metrics, and a page at /.

    If the model in the folder changes, the server loads the new one without losing a request. On SIGTERM it answers the open
    requests, then stops.
    """
    try:
        settings = ServeSettings(**limits)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    bundle_folder(model)
    try:
        from manyhot.serve import serve as serve_model
    except ImportError as error:
        raise ValueError(str(error)) from error
    code = serve_model(model, host=host, port=port, workers=workers, settings=settings)
    raise typer.Exit(code)
