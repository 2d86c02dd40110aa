"""The dashboard as an ASGI application: routes and error handlers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from covey.dashboard.access import REPORT_POLICY, Guard, dumps, on_http, refuse, sentence_of
from covey.dashboard.downloads import Pictures
from covey.dashboard.entries import Entry, read_json, read_toml
from covey.dashboard.follow import Streams, with_pings
from covey.dashboard.forms import Answer, Choices, Form, choices, judge
from covey.dashboard.jobs import BusyError, Jobs
from covey.dashboard.pages import pages
from covey.dashboard.playground import Question, play
from covey.dashboard.reasons import REASONS
from covey.dashboard.run_comparison import Curves, Differences, curves_of, differences_of
from covey.dashboard.run_tables import Tables
from covey.dashboard.runs_folder import FILES, EntryNameError, Folder, NotFoundError
from covey.dashboard.scenario_keys import COLUMNS, COMPARED, NAME, PLAYGROUND, Settings
from covey.errors import CoveyError

#: HTTP status by exception type; any other `CoveyError` is 422.
_STATUS: dict[type[CoveyError], int] = {NotFoundError: 404, BusyError: 409, EntryNameError: 409}

Id = Annotated[str, Query(min_length=1, max_length=NAME, description="Folder of an entry.")]
Ids = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=NAME)]],
    Query(alias="id", min_length=1, max_length=COMPARED, description="Folders of entries; give it once for each."),
]
Columns = Annotated[
    list[Annotated[str, Field(max_length=100)]],
    Query(alias="column", max_length=COLUMNS, description="Columns of rounds.csv or metrics.csv."),
]


class Error(BaseModel):
    """Error message: what was wrong, what is allowed, how to fix it."""

    error: str


class About(BaseModel):
    """Version, folder and limits of this dashboard."""

    version: str
    folder: str = Field(description="Name of the folder it serves.")
    jobs: int = Field(description="Maximum number of concurrent runs and trainings.")
    compared: int = Field(description="Maximum number of entries in a comparison.")
    playground: dict[str, int] = Field(description="Maximum sizes of a playground network.")
    reasons: dict[str, str] = Field(description="Reasons for which a user is not served, by key.")


class Details(BaseModel):
    """An entry without its rows."""

    entry: Entry
    scenario: dict[str, Any]
    learner: dict[str, Any]
    summary: dict[str, Any]
    files: list[str]


class Started(BaseModel):
    """The entry of a job."""

    id: str


class Stop(BaseModel):
    """The entry to stop."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(min_length=1, max_length=NAME)]


class Resume(Stop):
    """The entry to resume, and its new number of rounds."""

    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Json(Response):
    """A response that is already serialised."""

    media_type = "application/json"


def create_app(settings: Settings, closing: Callable[[], bool] = lambda: False) -> ASGIApp:
    """The dashboard of a folder with access control; `closing` tells event streams that the server is shutting down."""
    return Guard(api_app(settings, closing), settings)


def api_app(settings: Settings, closing: Callable[[], bool] = lambda: False) -> FastAPI:
    """The dashboard of a folder without access control: never expose it directly."""
    app = FastAPI(
        title="covey dashboard",
        version=metadata.version("covey"),
        description="Runs and trainings of a folder: list, compare, follow, start, stop, resume, and a playground.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses={code: {"model": Error} for code in (400, 401, 403, 404, 409, 413, 415, 421, 422)},
    )
    folder = Folder(settings.folder)
    jobs = Jobs(folder, settings.jobs)
    _add_errors(app)
    _add_reading(app, settings, folder, jobs, closing)
    _add_writing(app, folder, jobs)
    app.include_router(pages())
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(CoveyError)
    async def on_known(request: Request, error: CoveyError) -> Response:
        return refuse(_STATUS.get(type(error), 422), str(error))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        return refuse(422, sentence_of(error.errors()))

    app.exception_handler(HTTPException)(on_http)

    @app.exception_handler(OSError)
    async def on_file(request: Request, error: OSError) -> Response:
        return refuse(409, f"a file of the folder cannot be read now ({error.strerror or 'unknown reason'}); try again")

    @app.exception_handler(Exception)
    async def on_unexpected(request: Request, error: Exception) -> Response:
        return refuse(500, f"an unexpected error ({type(error).__name__}); please report it")


def _add_reading(app: FastAPI, settings: Settings, folder: Folder, jobs: Jobs, closing: Callable[[], bool]) -> None:
    catalogue, tables, pictures = jobs.catalogue, Tables(), Pictures()
    streams = Streams(catalogue, tables, pictures, closing)

    @app.get("/api/about")
    def about() -> About:
        """Version, folder and limits of this dashboard."""
        return About(
            version=metadata.version("covey"),
            folder=folder.root.name,
            jobs=settings.jobs,
            compared=COMPARED,
            playground=PLAYGROUND,
            reasons=REASONS,
        )

    @app.get("/api/entries")
    def entries() -> list[Entry]:
        """All runs and trainings, most recently changed first."""
        return catalogue.entries()

    @app.get("/api/entry")
    def entry(id: Id) -> Details:
        """One run or training with its settings and results."""
        found, path = catalogue.entry(id), folder.place(id)
        return Details(
            entry=found,
            scenario=read_toml(path / "scenario.toml"),
            learner=read_json(path / "learner.json"),
            summary=read_json(path / "summary.json"),
            files=[name for name in FILES if (path / name).is_file() and not (path / name).is_symlink()],
        )

    @app.get("/api/file", response_class=FileResponse)
    def file(id: Id, name: Annotated[str, Query(max_length=64)]) -> Response:
        """A file of a run or training."""
        path = folder.file(id, name)
        headers = {"content-security-policy": REPORT_POLICY} if name == "report.html" else {}
        return FileResponse(path, media_type=FILES[name], headers=headers)

    @app.get("/api/pictures", response_class=Json, responses={200: {"content": {"application/json": {}}}})
    def picture(id: Id) -> Response:
        """Data of a run's report: site, curves and one frame per round."""
        return Json(dumps(pictures.whole(folder.place(id))))

    @app.get("/api/curves")
    def curves(ids: Ids, columns: Columns = []) -> Curves:  # noqa: B006
        """Columns of several entries, for overlaid plots."""
        return curves_of(catalogue, tables, ids, columns)

    @app.get("/api/differences")
    def differences(ids: Ids) -> Differences:
        """Settings in which several entries differ."""
        return differences_of(catalogue, ids)

    @app.get("/api/watch", response_class=StreamingResponse)
    def watch() -> Response:
        """Server-sent events of the list: `entries` (new or changed) and `gone` (removed names)."""
        return _stream(streams, with_pings(streams.watch()))

    @app.get("/api/follow", response_class=StreamingResponse)
    def follow(id: Id) -> Response:
        """Server-sent events of one entry: `entry`, `reset`, `rows`, `frame`, `gone`."""
        folder.place(id)
        return _stream(streams, with_pings(streams.follow(id)))

    @app.get("/api/choices")
    def form_choices() -> Choices:
        """Form options: schemas, presets, policies."""
        return choices()


def _add_writing(app: FastAPI, folder: Folder, jobs: Jobs) -> None:
    @app.post("/api/check")
    def check(form: Form) -> Answer:
        """Validate a form with the error messages of the command line; starts nothing."""
        return judge(form, folder)

    @app.post("/api/start", status_code=201)
    def start(form: Form) -> Started:
        """Start a run or training in a new folder."""
        return Started(id=jobs.start(form))

    @app.post("/api/stop", status_code=202)
    def stop(what: Stop) -> Started:
        """Interrupt a run or training; finished rounds are saved and it can be resumed."""
        jobs.stop(what.id)
        return Started(id=what.id)

    @app.post("/api/resume", status_code=202)
    def resume(what: Resume) -> Started:
        """Continue a run or training from its checkpoint; more rounds extend a run."""
        jobs.resume(what.id, what.rounds)
        return Started(id=what.id)

    @app.post("/api/playground", response_class=Json, responses={200: {"content": {"application/json": {}}}})
    def playground(question: Question) -> Response:
        """Links, blocks, noise and epsilon of a network under each reference policy; trains nothing."""
        return Json(dumps(play(question, folder)))


def _stream(streams: Streams, events: Any) -> Response:
    if streams.full:
        raise BusyError("too many pages are open; close some of them")
    return StreamingResponse(events, media_type="text/event-stream")
