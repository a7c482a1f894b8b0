"""The queue: jobs given out once at a time, taken back from hosts that died, ended only by who holds them.

Claiming, ending, trying again and cancelling are Procrastinate's own functions in the database. What stands around
them: a job is ended or put back only while the asking worker holds it (a host that was thought dead and wasn't changes
nothing), and jobs of dead workers are put back by one statement that one host at a time can run.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import psycopg
import psycopg_pool
from procrastinate import SyncPsycopgConnector, exceptions
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

from orchestrator.errors import HostStorageError, StoreError, UsageError
from orchestrator.queueing.messages import PhoneJob, read_message
from orchestrator.queueing.schema import SCHEMA, make_tables

_TASK: Final = "benchfarm.phone"
_PART_BYTES: Final = 4 << 20
#: Any number that no other program of this database locks.
_REAPING: Final = 7_220_312
_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job that this worker holds."""

    job_id: int
    #: How often it was put back before.
    attempts: int
    message: Mapping[str, Any]

    def read(self) -> PhoneJob:
        """Return what the job says; raises UsageError."""
        return read_message(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a worker learns when it says that it lives."""

    #: False: others think it dead, or another worker has taken its name.
    is_ours: bool
    #: The jobs that it still holds.
    held: frozenset[int]
    #: Those of them that somebody cancelled.
    cancelled: frozenset[int]
    #: ``farm``, ``host:NAME`` or ``phone:SERIAL`` -> ``pause`` or ``drain``.
    holds: Mapping[str, str]


def _told(
    work: Callable[Concatenate[FarmQueue, _Given], _Returned],
) -> Callable[Concatenate[FarmQueue, _Given], _Returned]:
    """Make StoreError of what the database's driver raises."""

    @functools.wraps(work)
    def tell(queue: FarmQueue, /, *given: _Given.args, **named: _Given.kwargs) -> _Returned:
        try:
            return work(queue, *given, **named)
        except (psycopg.Error, psycopg_pool.PoolTimeout, exceptions.ConnectorException) as error:
            cause = error.__cause__ or error
            raise StoreError(f"the farm's queue: {str(cause).strip()}") from error

    return tell


class FarmQueue:
    """The farm's queue in a PostgreSQL database. A context manager; may be used by several threads."""

    def __init__(self, url: str) -> None:
        """Name the database as the store's URL does; raises UsageError for a store that isn't on PostgreSQL."""
        scheme, separator, rest = url.partition("://")
        if not separator or scheme.split("+")[0] not in {"postgresql", "postgres"}:
            raise UsageError(
                "a farm of many hosts needs a store on PostgreSQL",
                hint="--store postgresql://user@host/database, or $BENCHFARM_STORE; one host needs no farm commands",
            )
        self._pool: psycopg_pool.ConnectionPool[Any] = psycopg_pool.ConnectionPool(
            f"postgresql://{rest}",
            kwargs={"options": f"-c search_path={SCHEMA}", "connect_timeout": 5},
            min_size=1,
            max_size=4,
            timeout=10.0,
            open=False,
            check=psycopg_pool.ConnectionPool.check_connection,
        )
        self._jobs = JobManager(SyncPsycopgConnector())

    @_told
    def __enter__(self) -> Self:
        self._pool.open()
        try:
            with self._pool.connection() as connection:
                make_tables(connection)
        except BaseException:
            self._pool.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        with self._pool.connection() as connection:
            yield connection

    def _rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        with self._connection() as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description is not None else []

    # Submitting

    @_told
    def submit(self, jobs: Sequence[PhoneJob], *, plan_name: str, priority: int) -> list[int]:
        """Queue all jobs or none; return their numbers. Raises UsageError when the submission is there already."""
        with self._connection() as connection, connection.transaction():
            connector = SyncPsycopgConnector()
            known = connection.execute(
                "SELECT count(*) FROM farm_jobs WHERE submission = ANY(%s)", ([job.submission for job in jobs],)
            ).fetchone()
            if known and known[0]:
                raise UsageError(f"{jobs[0].submission}: this submission is in the queue already")
            numbers = []
            for job in jobs:
                queued = JobManager(connector).defer_job(
                    Job(
                        id=None,
                        task_name=_TASK,
                        queue=f"phone:{job.serial}",
                        lock=f"phone:{job.serial}",
                        queueing_lock=None,
                        priority=priority,
                        task_kwargs=job.to_message(),
                    ),
                    connection=connection,
                )
                assert queued.id is not None, "the database numbers jobs"
                numbers.append(queued.id)
                connection.execute(
                    "INSERT INTO farm_jobs (job_id, submission, serial, plan_name, campaign_id)"
                    " VALUES (%s, %s, %s, %s, %s)",
                    (queued.id, job.submission, str(job.serial), plan_name, str(job.campaign_id)),
                )
        return numbers

    @_told
    def cancel(self, submission: str) -> dict[int, str]:
        """Cancel what waits of a submission, ask for the end of what runs; return job number -> ``todo``/``doing``."""
        rows = self._rows(
            "SELECT j.id, j.status::text AS status, procrastinate_cancel_job_v1(j.id, true, false)"
            " FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " WHERE f.submission = %s AND j.status IN ('todo', 'doing')",
            submission,
        )
        return {row["id"]: row["status"] for row in rows}

    # Working

    @_told
    def register(self, host: str, *, benchfarm_version: str) -> int:
        """Announce a worker; an earlier one of this name ends by it. Returns the worker's number."""
        with self._connection() as connection, connection.transaction():
            row = connection.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id").fetchone()
            assert row is not None, "an insert returns its row"
            worker_id = int(row[0])
            connection.execute(
                "DELETE FROM procrastinate_workers WHERE id = (SELECT worker_id FROM farm_hosts WHERE name = %s)",
                (host,),
            )
            connection.execute(
                "INSERT INTO farm_hosts (name, worker_id, benchfarm_version) VALUES (%s, %s, %s)"
                " ON CONFLICT (name) DO UPDATE SET worker_id = excluded.worker_id, started_at = now(), seen_at = now(),"
                " benchfarm_version = excluded.benchfarm_version, note = ''",
                (host, worker_id, benchfarm_version),
            )
        return worker_id

    @_told
    def unregister(self, host: str, worker_id: int) -> None:
        """Take a worker that ends out of the list, with its phones."""
        self._rows("DELETE FROM farm_hosts WHERE name = %s AND worker_id = %s", host, worker_id)
        self._rows("DELETE FROM procrastinate_workers WHERE id = %s", worker_id)

    @_told
    def beat(self, host: str, worker_id: int) -> Beat:
        """Say that a worker lives, and learn what others want of it."""
        alive = self._rows(
            "WITH beat AS (UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = %s RETURNING id)"
            " UPDATE farm_hosts SET seen_at = now() FROM beat WHERE name = %s AND worker_id = beat.id RETURNING name",
            worker_id,
            host,
        )
        jobs = self._rows(
            "SELECT id, abort_requested FROM procrastinate_jobs WHERE worker_id = %s AND status = 'doing'", worker_id
        )
        return Beat(
            is_ours=bool(alive),
            held=frozenset(row["id"] for row in jobs),
            cancelled=frozenset(row["id"] for row in jobs if row["abort_requested"]),
            holds=self.holds(),
        )

    @_told
    def announce(self, host: str, phones: Mapping[str, tuple[str, str]]) -> None:
        """Say which phones a host has: serial number -> its facts as a document, and why it can't be used."""
        with self._connection() as connection, connection.transaction():
            connection.execute("DELETE FROM farm_phones WHERE host = %s AND serial <> ALL(%s)", (host, list(phones)))
            for serial, (facts, unusable) in phones.items():
                connection.execute(
                    "INSERT INTO farm_phones (serial, host, facts, unusable) VALUES (%s, %s, %s, %s)"
                    " ON CONFLICT (serial, host) DO UPDATE"
                    " SET facts = excluded.facts, unusable = excluded.unusable, seen_at = now()",
                    (serial, host, facts, unusable),
                )

    @_told
    def claim(self, host: str, worker_id: int, serials: Sequence[str]) -> Claimed | None:
        """Take the most urgent job for one of these phones; None when none waits. A phone has one job at a time."""
        if not serials:
            return None
        try:
            rows = self._rows(
                "SELECT id, attempts, args FROM procrastinate_fetch_job_v2(%s::varchar[], %s)",
                [f"phone:{serial}" for serial in serials],
                worker_id,
            )
        except psycopg.errors.UniqueViolation:
            # Two hosts wanted two jobs of one phone at the same moment; the other has it.
            return None
        if not rows or rows[0]["id"] is None:
            return None
        self._rows("UPDATE farm_jobs SET host = %s, note = '' WHERE job_id = %s", host, rows[0]["id"])
        return Claimed(job_id=rows[0]["id"], attempts=rows[0]["attempts"], message=rows[0]["args"])

    @_told
    def finish(self, worker_id: int, job_id: int, status: str, note: str) -> bool:
        """End a job (``succeeded``, ``failed``, ``aborted``); False (changing nothing) unless the worker holds it."""
        return self._if_held(
            "procrastinate_finish_job_v1(id, %s::procrastinate_job_status, false)", (status,), worker_id, job_id, note
        )

    @_told
    def put_back(self, worker_id: int, job_id: int, *, delay_s: float, note: str) -> bool:
        """Let a job be tried again later; False (and nothing changed) unless the worker holds it."""
        return self._if_held(
            "procrastinate_retry_job_v2(id, now() + make_interval(secs => %s), NULL, NULL, NULL)",
            (delay_s,),
            worker_id,
            job_id,
            note,
        )

    def _if_held(self, call: str, values: tuple[object, ...], worker_id: int, job_id: int, note: str) -> bool:
        with self._connection() as connection, connection.transaction():
            held = connection.execute(
                "SELECT id FROM procrastinate_jobs WHERE id = %s AND worker_id = %s AND status = 'doing' FOR UPDATE",
                (job_id, worker_id),
            ).fetchone()
            if held is None:
                return False
            query = f"SELECT {call} FROM procrastinate_jobs WHERE id = %s"  # noqa: S608 - call is ours
            connection.execute(query.encode(), (*values, job_id))
            connection.execute("UPDATE farm_jobs SET note = %s WHERE job_id = %s", (note, job_id))
        return True

    @_told
    def reap(self, *, dead_after_s: float) -> list[int]:
        """Put back the jobs of workers that weren't heard for so long; return their numbers.

        Every host may ask; one at a time does it, and asked twice it does nothing the second time.
        """
        rows = self._rows(
            "WITH elected AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(%s) AS ok), stalled AS MATERIALIZED ("
            " SELECT j.id FROM procrastinate_jobs j WHERE j.status = 'doing' AND (SELECT ok FROM elected)"
            " AND NOT EXISTS (SELECT 1 FROM procrastinate_workers w WHERE w.id = j.worker_id"
            " AND w.last_heartbeat > now() - make_interval(secs => %s))"
            " FOR UPDATE OF j SKIP LOCKED)"
            " SELECT id, procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL) FROM stalled",
            _REAPING,
            dead_after_s,
        )
        return [row["id"] for row in rows]

    # Steering and looking

    @_told
    def hold(self, scope: str, kind: str) -> None:
        """Pause or drain ``farm``, ``host:NAME`` or ``phone:SERIAL``."""
        self._rows(
            "INSERT INTO farm_holds (scope, kind) VALUES (%s, %s)"
            " ON CONFLICT (scope) DO UPDATE SET kind = excluded.kind, since = now()",
            scope,
            kind,
        )

    @_told
    def release(self, scope: str) -> bool:
        """End a pause or drain; False when there was none."""
        return bool(self._rows("DELETE FROM farm_holds WHERE scope = %s RETURNING scope", scope))

    @_told
    def holds(self) -> dict[str, str]:
        """Return what is paused or drained."""
        return {row["scope"]: row["kind"] for row in self._rows("SELECT scope, kind FROM farm_holds")}

    @_told
    def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts: name, benchfarm_version, silent_s."""
        return self._rows(
            "SELECT name, benchfarm_version, extract(epoch FROM now() - seen_at)::float AS silent_s"
            " FROM farm_hosts ORDER BY name"
        )

    @_told
    def phones(self) -> list[dict[str, Any]]:
        """Return the phones announced: serial, host, facts, unusable, silent_s of the host, the job that runs."""
        return self._rows(
            "SELECT p.serial, p.host, p.facts, p.unusable, extract(epoch FROM now() - h.seen_at)::float AS silent_s"
            " FROM farm_phones p JOIN farm_hosts h ON h.name = p.host ORDER BY p.serial, p.host"
        )

    @_told
    def jobs(self, submission: str = "") -> list[dict[str, Any]]:
        """Return the jobs of one submission, or of all, the newest last."""
        return self._rows(
            "SELECT f.job_id, f.submission, f.serial, f.plan_name, f.campaign_id, f.host, f.note, j.priority,"
            " j.attempts, CASE j.status WHEN 'todo' THEN 'waits' WHEN 'doing' THEN 'runs' WHEN 'succeeded' THEN 'done'"
            " WHEN 'aborted' THEN 'cancelled'"
            " WHEN 'failed' THEN CASE WHEN j.abort_requested THEN 'cancelled' ELSE 'failed' END"
            " ELSE j.status::text END AS status"
            " FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
            " WHERE %s::text = '' OR f.submission = %s ORDER BY f.job_id",
            submission,
            submission,
        )

    # Files

    @_told
    def upload(self, path: Path, sha256: str) -> bool:
        """Keep a file under its content's hash; False when it is there already. Raises UsageError if it changed."""
        if self._rows("SELECT 1 FROM farm_files WHERE sha256 = %s", sha256):
            return False
        with self._connection() as connection, connection.transaction(), path.open("rb") as file:
            made = connection.execute(
                "INSERT INTO farm_files (sha256, size_bytes) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING sha256",
                (sha256, path.stat().st_size),
            ).fetchone()
            if made is None:
                return False
            digest = hashlib.sha256()
            for number, part in enumerate(iter(functools.partial(file.read, _PART_BYTES), b"")):
                digest.update(part)
                connection.execute("INSERT INTO farm_file_parts VALUES (%s, %s, %s)", (sha256, number, part))
            if digest.hexdigest() != sha256:
                raise UsageError(f"{path} was changed while it was read", hint="submit again")
        return True

    @_told
    def fetch(self, sha256: str, folder: Path) -> Path:
        """Return a file by its content's hash, from the folder or else from the database; verified each time.

        Raises:
            StoreError: nobody uploaded it, or its content in the database is damaged.
            HostStorageError: it can't be written.
        """
        path = folder / f"{sha256}.tflite"
        if path.is_file() and _sha256(path) == sha256:
            return path
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._connection() as connection, draft.open("wb") as file:
                for part in self._parts(connection, sha256):
                    file.write(part)
            if _sha256(draft) != sha256:
                raise StoreError(f"the file {sha256[:16]} in the farm's database is missing or damaged")
            draft.replace(path)
        except OSError as error:
            raise HostStorageError(f"{error.filename}: {error.strerror}") from error
        finally:
            draft.unlink(missing_ok=True)
        return path

    def _parts(self, connection: psycopg.Connection[Any], sha256: str) -> Iterator[bytes]:
        number = 0
        while True:
            row = connection.execute(
                "SELECT data FROM farm_file_parts WHERE sha256 = %s AND part_no = %s", (sha256, number)
            ).fetchone()
            if row is None:
                return
            yield bytes(row[0])
            number += 1


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
