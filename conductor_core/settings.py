"""Defines every setting, with its unit and the reason for its default.

An environment variable sets each field: ``CONDUCTOR_`` and the field's name in capitals (``CONDUCTOR_MAX_STEPS=8``).
``DATABASE_URL`` sets the database, too. A test keeps ``docs/settings.md`` in step.
"""

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import platformdirs
from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from conductor_core.chat.messages import OnIncomplete
from conductor_core.privacy.detectors import SENSITIVE, Sensitive

_Port = Annotated[int, Field(ge=1, le=65535)]
_HOST_NAME = re.compile(r"(?!-)[0-9a-z_-]+(?:\.[0-9a-z_-]+)*")


SHIPPED = TINY, SMALL = "tiny", "small"
"""The names of the Conductors that come with the program."""
SMALL_BASE, SMALL_BASE_BYTES = "SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432
"""The model that the Conductor ``small`` is made of."""
PROGRAM_MODELS = Path(sys.prefix) / "share" / "conductor-inspector" / "models"
"""Models that came with the installation, such as with the image."""


def small_base(models_folder: Path) -> Path | None:
    """Returns where that model lies: in ``models_folder`` or with the installation; None: it is not here.

    Only its size is looked at: whoever fetched it checked its digest, and whoever opens it may check it again.
    """
    for path in (models_folder / SMALL_BASE, PROGRAM_MODELS / SMALL_BASE):
        with suppress(OSError):
            if path.stat().st_size == SMALL_BASE_BYTES:
                return path
    return None


class Settings(BaseSettings):
    """Process-wide settings. A process reads them once, where it is wired together."""

    model_config = SettingsConfigDict(env_prefix="CONDUCTOR_", frozen=True, extra="ignore", populate_by_name=True)

    data_folder: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("conductor-inspector")),
        description="Where the database, `training/`, `evaluations/`, `pools/`, `conductors/`, `models/`, "
        "`prefixes/` and `edits/` are.",
    )
    database_url: str | None = Field(
        None,
        validation_alias=AliasChoices("CONDUCTOR_DATABASE_URL", "DATABASE_URL"),
        description="`sqlite:////FOLDER/FILE.sqlite3`; only SQLite works. Unset: a file in the data folder.",
    )
    anchor: str | None = Field(
        None,
        description="Where signed checkpoints of the log are published: a file or folder that another user or host "
        "owns, or `git:FOLDER`. Unset: what `conductor log anchor --to` chose, else a folder beside the database, "
        "[which proves less](audit.md#a-witness).",
    )
    signing_key: Path | None = Field(
        None,
        description="The file of the key that signs them; made if it is missing. Unset: a folder beside the database.",
    )
    conductor: str = Field(
        default_factory=lambda read: SMALL if small_base(read["data_folder"] / "models") else TINY,
        description="Conductor used when none is named: tiny, small, one of a conductors file, folder, GGUF file, hub "
        "id or URL#MODEL.",
    )
    pool: str = Field(
        "rehearsal",
        description="Pool used when none is named: rehearsal, paper, small, a name in `pools/` or a TOML file.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Host names, separated by commas, that the pages accept beside `localhost` and IP addresses. "
        "Behind a reverse proxy, name its host here and let it pass `Host` on.",
    )
    inspector_url: str = Field(
        "http://127.0.0.1:8501",
        description="Where the inspector shows runs: answers of `conductor serve` name each run's page there.",
    )
    key_variables: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Variables, separated by commas, whose values may be sent as keys although their names lack KEY, "
        "TOKEN and SECRET. Only this setting allows them.",
    )
    server_ports: Annotated[tuple[_Port, ...], NoDecode] = Field(
        (11434, 1234, 8000, 8080, 30000, 4000),
        description="Ports of this machine, separated by commas, on which the program looks for model servers (Ollama, "
        "LM Studio, vLLM, llama.cpp, SGLang, LiteLLM). Empty: it does not look.",
    )
    recorded_runs: bool = Field(
        True,
        description="Put three recorded runs, two of simulated workers and a real one, into a new database when the "
        "inspector starts.",
    )
    otlp_endpoint: str | None = Field(
        None,
        description="Send each run as an OpenTelemetry trace to this address, such as `http://127.0.0.1:6006`; without "
        "a path, `/v1/traces` is added. It needs the extra `otlp`. Headers, such as a key, come from "
        "`OTEL_EXPORTER_OTLP_HEADERS`.",
    )
    otlp_contents: bool = Field(
        False,
        description="Put what people and models wrote into OpenTelemetry traces, sent or exported. Keys are hidden.",
    )
    warm_up: bool = Field(True, description="Load a local default Conductor when the first page is opened.")
    seed: int = Field(
        0, ge=-(2**63), le=2**63 - 1, description="Seed of the rehearsal workers and of sampled decoding."
    )

    redact: Annotated[tuple[Sensitive, ...], NoDecode] = Field(
        (),
        description="[What is hidden](privacy.md) before a run is stored, separated by commas: `keys`, `cards`, "
        "`mail`, `phones`, `names`; the last two need the extras `privacy` and `names`.",
    )
    redact_region: Annotated[str, Field(pattern="^[A-Z]{2}$")] | None = Field(
        None,
        description="Country whose national phone numbers are hidden, such as `DE`. Unset: only numbers that begin "
        "with `+`.",
    )
    redact_names_model: str = Field(
        "en_core_web_sm",
        description="spaCy model that [finds the names of people](privacy.md#names-of-people): an installed one, or a "
        "folder.",
    )
    redact_digests: bool = Field(
        False,
        description="Note with each hidden passage a keyed digest, so that the same passage can be recognised.",
    )

    encrypt: bool = Field(
        False,
        description="[Encrypt](privacy.md#encrypted) the text of new runs. Whoever loses the file `.keys` beside the "
        "database or the master key loses these runs.",
    )
    master_key: Path | None = Field(
        None,
        description="File of the master key, made when it is first needed. Unset: beside the database, `.master-key`.",
    )

    max_steps: int = Field(5, ge=1, le=32, description="Steps a workflow may have; 5 in the paper's training.")
    max_tokens: int | None = Field(
        None, ge=1, le=10**12, description="Token budget of a run, input and output. Unset: no limit."
    )
    max_usd: float | None = Field(
        None,
        ge=0,
        le=1e9,
        description="Cost budget of a run in USD. Unset: no limit. It counts the calls whose price is known.",
    )
    max_seconds: float | None = Field(
        600,
        gt=0,
        le=1e9,
        description="Wall time budget of a run in seconds, without the time in which it waits for an approval.",
    )
    max_depth: int = Field(1, ge=0, le=8, description="Recursive rounds below the first; the paper uses one.")
    plan_attempts: int = Field(
        2, ge=1, le=5, description="How often a Conductor is asked before the run rejects its plan."
    )
    plan_max_tokens: int = Field(
        1024, ge=16, le=10**6, description="Longest completion of a Conductor; 1024 in the paper."
    )
    plan_max_bytes: int = Field(
        65_536,
        ge=1024,
        le=500_000,  # what the parser reads of a text of lists
        description="Longest answer of a Conductor in bytes of UTF-8.",
    )
    constrained: bool = Field(True, description="Grammar-constrained decoding: every plan parses.")

    step_attempts: int = Field(3, ge=1, le=10, description="Calls made for one step before it fails.")
    retry_initial_s: float = Field(0.5, ge=0, le=86_400, description="First wait before a retry; doubles, with jitter.")
    retry_max_s: float = Field(
        20.0,
        ge=0,
        le=86_400,
        description="Longest wait before a retry, in seconds, unless the provider asks for a longer one (Retry-After).",
    )
    on_incomplete: OnIncomplete = Field(
        "allow",
        description="What happens to a step whose answer is refused, filtered, cut or empty: `allow`, `stop`, "
        "`more_tokens`, `fallback` ([what each does](your-own-models.md#answers-that-are-not-whole)). A pool "
        "file and a run take precedence.",
    )
    give_question: bool = Field(
        False,
        description="Tell every step the task, even if its instruction lacks `{question}`. A pool file and a run take "
        "precedence.",
    )
    delta_interval_ms: float = Field(
        100.0, ge=0, le=60_000, description="Streamed text is collected this long before it is logged, in milliseconds."
    )
    model_idle_s: float = Field(
        900.0,
        gt=0,
        le=1e9,
        description="A model of this machine leaves memory after so many seconds without a request. A model folder "
        "below a hundred million parameters stays.",
    )
    prefix_bytes: int = Field(
        2**30,
        ge=0,
        le=2**50,
        description="Bytes that `prefixes/` may have. There a Conductor of a GGUF file keeps what it has read of its "
        "prompt, so that a restart need not read it again: about 80 MB for a 7B and each pool. 0: nothing is kept.",
    )
    rehearsal_tokens_per_s: float = Field(
        40.0, ge=0, le=1e6, description="Pace of the simulated workers in tokens per second; 0: at once."
    )

    @field_validator("allowed_hosts", "key_variables", "redact", "server_ports", mode="before")
    @classmethod
    def _read_list(cls, given: object, info: ValidationInfo) -> object:
        """Reads what is separated by commas. Raises: ValueError, which names what cannot be hidden."""
        if isinstance(given, str):
            given = tuple(filter(None, map(str.strip, given.split(","))))
        for kind in given if info.field_name == "redact" and isinstance(given, tuple) else ():
            if kind not in SENSITIVE:
                raise ValueError(f"{kind!r} is none of {', '.join(SENSITIVE)}")
        return given

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(name.lower().removesuffix(".") for name in given)
        for name in names:
            if not _HOST_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a host name; give names alone, as in `inspector.example, inspector.lan`"
                )
        return names

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_endpoint(cls, given: str | None) -> str | None:
        """Raises: ValueError if it is no address of a server."""
        if not given:
            return None
        parts = urlsplit(given)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{given!r} is not an address; give one like http://127.0.0.1:6006/v1/traces")
        if parts.username is not None or parts.password is not None:
            raise ValueError("an address must not hold a user or password; use OTEL_EXPORTER_OTLP_HEADERS")
        return given if parts.path not in ("", "/") else parts._replace(path="/v1/traces").geturl()

    @field_validator("inspector_url")
    @classmethod
    def _check_address(cls, given: str) -> str:
        """Raises: ValueError if it is no address of a page."""
        parts = urlsplit(given)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username is not None
            or not given.isascii()
            or not given.isprintable()
        ):
            raise ValueError(f"{given!r} is not an address; give one like http://127.0.0.1:8501")
        return given.rstrip("/")

    @property
    def pools_folder(self) -> Path:
        """The folder of the pool files that are known by name."""
        return self.data_folder / "pools"

    @property
    def conductors_folder(self) -> Path:
        """The folder of the conductors files whose Conductors are known by name."""
        return self.data_folder / "conductors"

    @property
    def prefixes_folder(self) -> Path:
        """The folder in which Conductors of GGUF files keep what they have read of their prompts."""
        return self.data_folder / "prefixes"

    @property
    def models_folder(self) -> Path:
        """The folder whose model folders are listed as Conductors."""
        return self.data_folder / "models"

    @property
    def machine_key(self) -> Path:
        """The file of the key that proves which machine sent a command to a run."""
        return self.data_folder / "machine-key"

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or sqlite_url(self.data_folder / "conductor-inspector.sqlite3")


def sqlite_url(path: Path) -> str:
    return "sqlite:///" + str(path).replace("%", "%25").replace("?", "%3F")


def setting_fault(error: ValidationError) -> str:
    """Says in one line what ``Settings()`` refused, with the environment variable."""
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "a setting"
    variable = name if name.isupper() else f"CONDUCTOR_{name.upper()}"
    said = first["msg"].removeprefix("Value error, ")
    return f"the environment variable {variable} cannot be used: {said}; correct it or unset it"
