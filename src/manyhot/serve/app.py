"""The ASGI application: its routes. Answering a request reads and writes no files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

import manyhot
from manyhot.serve.batching import Batcher
from manyhot.serve.counters import Counters
from manyhot.serve.guard import Guard
from manyhot.serve.refusals import Refusal, json_body
from manyhot.serve.requests import parse, request_models
from manyhot.serve.served import bundle_digest, load_served
from manyhot.serve.settings import ServeSettings

log = logging.getLogger("manyhot.serve")
PAGE = {"/": ("index.html", "text/html"), "/page.css": ("page.css", "text/css"), "/page.js": ("page.js", "text/javascript")}


class Service:
    """A model and the requests to it.

    Args:
        folder: the folder of a model or of a run.
        settings: limits and timing.
        counters: where requests are counted.
    """

    def __init__(self, folder: Path, settings: ServeSettings, counters: Counters) -> None:
        self.folder, self.settings, self.counters = folder, settings, counters
        self.served = load_served(folder)
        self.predict_body, self.explain_body = request_models(self.served.kind, settings)
        self.started = time.time()
        self.guard: Guard | None = None
        self.batcher: Batcher | None = None
        self._refused_digest = ""
        self._reloading = asyncio.Lock()

    def start(self) -> None:
        """Start the batcher in the running event loop."""
        chosen = self.settings
        self.batcher = Batcher(
            self._run,
            max_rows=chosen.batch_rows,
            wait=chosen.batch_wait / 1000,
            max_waiting=chosen.max_waiting,
            on_batch=self._count_batch,
        )
        self.batcher.start()

    async def predict(self, body: bytes) -> bytes:
        """The answer to ``/predict``."""
        asked = parse(body, self.predict_body, max_rows=self.settings.max_rows)
        return await self._ask("predictions", asked)

    async def explain(self, body: bytes) -> bytes:
        """The answer to ``/explain``."""
        asked = parse(body, self.explain_body, max_rows=self.settings.explain_rows)
        return await self._ask("explanations", asked)

    async def _ask(self, name: str, asked: Any) -> bytes:
        assert self.batcher is not None
        # One model answers a whole request, even if a new model is loaded meanwhile.
        served = self.served
        rows = served.check(asked.inputs, self.settings)
        content = (served, name, rows, asked)
        found = await self.batcher.submit(len(rows), content, timeout=self.settings.timeout)
        self.counters.add("rows", len(rows))
        return json_body({name: found, "model": served.digest})

    def _run(self, contents: Sequence[Any]) -> list[Any]:
        """Compute some jobs in the model's thread; predictions of the same model form one batch."""
        answers: list[Any] = [None] * len(contents)
        together: dict[int, list[int]] = {}
        for place, (served, name, rows, asked) in enumerate(contents):
            if name == "predictions":
                together.setdefault(id(served), []).append(place)
                continue
            try:
                answers[place] = served.explain(rows, asked)
            except Refusal as refusal:
                answers[place] = refusal
            except (ValueError, TypeError) as error:
                # Unknown label names in a request raise these errors.
                answers[place] = Refusal(422, str(error).split(": ", 1)[-1])
            except Exception as error:
                answers[place] = error
        for places in together.values():
            served = contents[places[0]][0]
            found = iter(served.compute([row for place in places for row in contents[place][2]]))
            for place in places:
                _, _, rows, asked = contents[place]
                answers[place] = [served.answer(next(found), asked) for _ in rows]
        return answers

    def _count_batch(self, rows: int) -> None:
        self.counters.add("batches", 1)
        self.counters.add("batch_rows", rows)

    def about(self) -> dict[str, Any]:
        """The labels, the rule and the limits, for ``/about``."""
        limits = ("max_body", "max_rows", "max_characters", "max_labels", "explain_rows")
        told = self.served.about()
        return {**told, "limits": {name: getattr(self.settings, name) for name in limits}, "version": manyhot.__version__}

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and body of ``/health``."""
        stopping = self.guard is not None and self.guard.stopping
        told = {
            "status": "stopping" if stopping else "ok",
            "model": self.served.digest,
            "kind": self.served.kind,
            "uptime_seconds": round(time.time() - self.started, 3),
        }
        return (503 if stopping else 200), told

    async def reload(self) -> bool:
        """Load the model that the folder holds now; requests in progress keep the old one.

        A model that cannot be read, or that reads another kind of input, is rejected: the old one stays.
        """
        async with self._reloading:
            loop = asyncio.get_running_loop()
            try:
                digest = await loop.run_in_executor(None, bundle_digest, self.folder)
                if digest in (self.served.digest, self._refused_digest):
                    return False
                fresh = await loop.run_in_executor(None, load_served, self.folder)
                if fresh.kind != self.served.kind:
                    raise ValueError(f"it reads {fresh.kind}, the server was started for {self.served.kind}")
            except Exception as error:
                log.warning("the new model was not loaded: %s", error)
                self.counters.add("reload_failures", 1)
                # A model that is still being written is tried again later; one that reads other inputs is not.
                self._refused_digest = digest if isinstance(error, ValueError) and "reads" in str(error) else ""
                return False
            self.served = fresh
            self.counters.add("reloads", 1)
            log.info("loaded model %s", fresh.digest)
            return True


def make_app(service: Service, *, hosts: Collection[str] | None = None) -> tuple[FastAPI, Guard]:
    """The application of a service and its guard; ``hosts`` are the host names that requests may have, None for all."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        assert service.batcher is not None
        await service.batcher.stop()

    # FastAPI's documentation pages load scripts from other servers; /openapi.json has the description itself.
    app = FastAPI(title="manyhot", version=manyhot.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    guard = Guard(app, service.settings, service.counters, hosts=hosts)
    service.guard = guard
    _add_routes(app, service)
    _add_page(app)
    _add_refusals(app)
    return app, guard


def _add_routes(app: FastAPI, service: Service) -> None:
    def described(model: Any) -> dict[str, Any]:
        schema = model.model_json_schema()
        return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}

    refusals: dict[int | str, dict[str, Any]] = {
        status: {"description": text}
        for status, text in (
            (413, "the body is too long, or has too many rows or characters"),
            (422, "the body is not valid input for this model"),
            (429, "the queue is full, or too many connections are open"),
            (503, "the request timed out, or the server is stopping"),
        )
    }

    @app.post("/predict", openapi_extra=described(service.predict_body), responses=refusals, summary="Labels or spans of rows")
    async def predict(request: Request) -> Response:
        return _json(await _counted(service, service.predict, await request.body()))

    @app.post("/explain", openapi_extra=described(service.explain_body), responses=refusals, summary="Explanations of labels")
    async def explain(request: Request) -> Response:
        return _json(await _counted(service, service.explain, await request.body()))

    @app.get("/about", summary="Labels, rule and limits")
    async def about() -> Response:
        return _json(json_body(service.about()))

    @app.get("/health", summary="Whether the server accepts requests")
    async def health() -> Response:
        status, told = service.health()
        return _json(json_body(told), status)

    @app.get("/metrics", summary="Metrics for Prometheus")
    async def metrics() -> Response:
        assert service.batcher is not None
        service.counters.set("waiting", service.batcher.waiting)
        return Response(service.counters.text(), media_type="text/plain; version=0.0.4")


def _add_refusals(app: FastAPI) -> None:
    """Every refusal is JSON with a status and a reason."""

    async def refused(_: Request, refusal: Any) -> Response:
        return Response(refusal.body(), status_code=refusal.status, headers=dict(refusal.headers))

    async def unknown(request: Request, error: Any) -> Response:
        words = {404: "there is no such path", 405: f"{request.method} is not allowed for this path"}
        reason = f"{words.get(error.status_code, str(error.detail))}. See /openapi.json"
        return await refused(request, Refusal(error.status_code, reason))

    async def failed(request: Request, _: Any) -> Response:
        return await refused(request, Refusal(500, "internal server error; see the log of the server."))

    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(Exception, failed)


async def _counted(service: Service, ask: Any, body: bytes) -> bytes:
    """Count the request as in progress: the batcher waits only if other requests are."""
    assert service.batcher is not None
    service.batcher.expected += 1
    try:
        answer: bytes = await ask(body)
        return answer
    finally:
        service.batcher.expected -= 1


def _add_page(app: FastAPI) -> None:
    folder = files("manyhot.serve").joinpath("page")
    for path, (name, kind) in PAGE.items():
        # Read once at startup: answering a request reads no file.
        app.add_route(path, _endpoint(folder.joinpath(name).read_bytes(), kind), methods=["GET"], include_in_schema=False)


def _endpoint(content: bytes, kind: str) -> Any:
    async def endpoint(_: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type="application/json")
