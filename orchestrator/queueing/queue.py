"""The queue: jobs given out once at a time, taken back from hosts that died, ended only by who holds them.

Ending, trying again and cancelling are Procrastinate's own functions in the database. What stands around them: a job is
ended or requeued only while the asking worker holds it (a host that was thought dead and wasn't changes nothing), jobs
of dead workers are requeued by one host at a time, and a job that waits for another try doesn't hold up its phone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from orchestrator.queueing.database import QueueHeldError
from orchestrator.queueing.overview import Overview, forget_worker
from orchestrator.queueing.submissions import PROTOCOL, Submission, end_as_failed, enqueue, keep, queue_of
from orchestrator.records.identity import CampaignId, Serial, campaign_id_of

#: Any number that no other program of this database locks.
_REAPING: Final = 7_220_312
#: A job at which this many workers died isn't given to another one.
DEATHS_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job that this worker holds."""

    job_id: int
    #: The phone that it was taken for.
    serial: Serial
    submission: str
    #: The submission's plan with all that it names (config/farm_documents.py).
    document: str
    #: Those of the phone that it was made for, as a document.
    facts: str
    #: How often it failed on the phone before; deaths of hosts aren't counted.
    tries: int = 0

    @property
    def campaign_id(self) -> CampaignId:
        """The campaign of this job: the same one however often the job is delivered."""
        return campaign_id_of(self.submission, self.serial)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A phone as its host announces it."""

    #: Its facts as a document, empty for one that can't be used and was never asked.
    facts: str
    #: Why it can't be used, empty when it can.
    unusable: str = ""
    #: JSON: its pools and tags.
    labels: str = ""


class FarmQueue(Overview):
    """The farm's queue in a PostgreSQL database. A context manager; may be used by several threads."""

    def submit(self, submission: Submission, phones: Mapping[str, str]) -> list[int]:
        """Queue a job for each phone, or none; return their numbers.

        ``phones``: serial number -> facts (a document). The contents that the plan needs are in the farm already.

        Raises UsageError for a submission that is there already, a name or serial number that can't be used, and a file
        that was taken away meanwhile.
        """
        with self.connection() as connection, connection.transaction():
            keep(connection, submission)
            return [enqueue(connection, submission, serial, facts) for serial, facts in phones.items()]

    def namesake(
        self, host: str, *, besides: str | None = None, heard_within_s: float | None = None
    ) -> datetime | None:
        """Return since when a worker has this name, None when none has.

        ``besides``: one of this computer (its ``host_id``) doesn't count. ``heard_within_s``: nor does a silent one.
        """
        rows = self.rows(
            "SELECT started_at FROM farm_hosts WHERE name = %s AND (%s::text IS NULL OR host_id <> %s)"
            " AND (%s::float IS NULL OR seen_at > now() - make_interval(secs => %s))",
            host, besides, besides, heard_within_s, heard_within_s,
        )  # fmt: skip
        return rows[0]["started_at"] if rows else None

    def register(self, host: str, *, benchfarm_version: str, host_id: str = "") -> int:
        """Announce a worker; an earlier one of this name ends by it. Returns the worker's number.

        ``host_id`` is the same one each time that a worker of this computer is started.
        """
        with self.connection() as connection, connection.transaction():
            row = connection.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id").fetchone()
            assert row is not None, "an insert returns its row"
            worker_id = int(row[0])
            before = connection.execute("SELECT worker_id FROM farm_hosts WHERE name = %s", (host,)).fetchone()
            if before is not None:
                forget_worker(connection, before[0])
            connection.execute(
                "INSERT INTO farm_hosts (name, worker_id, benchfarm_version, host_id)"
                " VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (name) DO UPDATE SET worker_id = excluded.worker_id, started_at = now(), seen_at = now(),"
                " benchfarm_version = excluded.benchfarm_version, host_id = excluded.host_id",
                (host, worker_id, benchfarm_version, host_id),
            )
        return worker_id

    def unregister(self, host: str, worker_id: int) -> None:
        """Take a worker that ends out of the list, with its phones."""
        self.rows("DELETE FROM farm_hosts WHERE name = %s AND worker_id = %s", host, worker_id)
        with self.connection() as connection, connection.transaction():
            forget_worker(connection, worker_id)

    def beat(self, host: str, worker_id: int, *, ails: str = "") -> Beat:
        """Say that a worker lives, and what is wrong with its host if anything; learn what others want of it."""
        alive = self.rows(
            "WITH beat AS (UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = %s RETURNING id)"
            " UPDATE farm_hosts SET seen_at = now(), note = %s FROM beat"
            " WHERE name = %s AND worker_id = beat.id RETURNING name",
            worker_id,
            ails,
            host,
        )
        jobs = self.rows(
            "SELECT id, abort_requested FROM procrastinate_jobs WHERE worker_id = %s AND status = 'doing'", worker_id
        )
        return Beat(
            is_ours=bool(alive),
            held=frozenset(row["id"] for row in jobs),
            cancelled=frozenset(row["id"] for row in jobs if row["abort_requested"]),
            holds=self.holds(),
        )

    def announce(self, host: str, phones: Mapping[str, Announced]) -> None:
        """Announce a host's phones by serial number; what was announced before isn't written again."""
        with self.connection() as connection, connection.transaction():
            rows = connection.execute(
                "SELECT serial, facts_md5, unusable, labels FROM farm_phones WHERE host = %s", (host,)
            ).fetchall()
            before = {serial: known for serial, *known in rows}
            if gone := list(before.keys() - phones.keys()):
                connection.execute("DELETE FROM farm_phones WHERE host = %s AND serial = ANY(%s)", (host, gone))
            for serial, phone in phones.items():
                facts_md5 = hashlib.md5(phone.facts.encode(), usedforsecurity=False).hexdigest()
                if before.get(serial) != [facts_md5, phone.unusable, phone.labels]:
                    connection.execute(
                        "INSERT INTO farm_phones (serial, host, facts, unusable, labels) VALUES (%s, %s, %s, %s, %s)"
                        " ON CONFLICT (serial, host) DO UPDATE SET facts = excluded.facts,"
                        " unusable = excluded.unusable, labels = excluded.labels, changed_at = now()",
                        (serial, host, phone.facts, phone.unusable, phone.labels),
                    )

    def busy_elsewhere(self, host: str) -> frozenset[str]:
        """Return the phones that do a job of another host now."""
        rows = self.rows(
            "SELECT f.serial FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " WHERE j.status = 'doing' AND f.host <> %s",
            host,
        )
        return frozenset(row["serial"] for row in rows)

    def claim(self, host: str, worker_id: int, serials: Sequence[str]) -> Claimed | None:
        """Take the most urgent job for one of these phones; None when none waits. A phone has one job at a time.

        Procrastinate's own function would let a job that waits for another try hold up all others of its phone.
        """
        try:
            rows = self.rows(
                "WITH next AS (SELECT j.id FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
                " JOIN farm_submissions s ON s.submission = f.submission WHERE j.status = 'todo' AND s.protocol = %s"
                " AND j.queue_name = ANY(%s::varchar[]) AND (j.scheduled_at IS NULL OR j.scheduled_at <= now())"
                " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs o WHERE o.lock = j.lock AND o.status = 'doing')"
                " ORDER BY j.priority DESC, j.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED),"
                " taken AS (UPDATE procrastinate_jobs j SET status = 'doing', worker_id = %s FROM next"
                " WHERE j.id = next.id RETURNING j.id)"
                " UPDATE farm_jobs f SET host = %s, note = '' FROM taken, farm_submissions s"
                " WHERE f.job_id = taken.id AND s.submission = f.submission"
                " RETURNING f.job_id, f.serial, f.submission, s.document, f.facts, f.tries",
                PROTOCOL,
                [queue_of(serial) for serial in serials],
                worker_id,
                host,
            )
        except QueueHeldError:
            # Two hosts wanted two jobs of one phone at the same moment; the other has it.
            return None
        return Claimed(**rows[0]) if rows else None

    def finish(self, worker_id: int, job_id: int, status: str, note: str) -> bool:
        """End a job (``succeeded``, ``failed``, ``aborted``); False (changing nothing) unless the worker holds it."""
        return self._if_held(
            "procrastinate_finish_job_v1(id, %s::procrastinate_job_status, false)", (status,), worker_id, job_id, note
        )

    def requeue(self, worker_id: int, job_id: int, *, delay_s: float, note: str, is_try: bool = True) -> bool:
        """Let a job be tried again later; False (and nothing changed) unless the worker holds it.

        ``is_try``: whether it counts as a try of the phone; a worker that was stopped didn't try.
        """
        return self._if_held(
            "procrastinate_retry_job_v2(id, now() + make_interval(secs => %s), NULL, NULL, NULL)",
            (delay_s,),
            worker_id,
            job_id,
            note,
            tries=int(is_try),
        )

    def _if_held(
        self, call: str, values: tuple[object, ...], worker_id: int, job_id: int, note: str, *, tries: int = 0
    ) -> bool:
        with self.brief() as connection:
            held = connection.execute(
                "SELECT id FROM procrastinate_jobs WHERE id = %s AND worker_id = %s AND status = 'doing' FOR UPDATE",
                (job_id, worker_id),
            ).fetchone()
            if held is None:
                return False
            query = f"SELECT {call} FROM procrastinate_jobs WHERE id = %s"  # noqa: S608 - call is ours
            connection.execute(query.encode(), (*values, job_id))
            connection.execute(
                "UPDATE farm_jobs SET note = %s, tries = tries + %s WHERE job_id = %s", (note, tries, job_id)
            )
        return True

    def reap(self, *, dead_after_s: float | None) -> list[int]:
        """Requeue the jobs of workers that weren't heard for so long; return their numbers.

        None: those alone that no worker has any more.

        Every host may ask; one at a time does it, and asked twice it does nothing the second time. A job at which
        ``DEATHS_MAX`` workers died is ended instead: it may well be what kills them.
        """
        with self.brief() as connection:
            # By itself: what the next statement sees is then what the one elected before has done.
            elected = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_REAPING,)).fetchone()
            if not elected or not elected[0]:
                return []
            stalled = connection.execute(
                "SELECT j.id, f.deaths FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
                " WHERE j.status = 'doing' AND NOT EXISTS (SELECT 1 FROM procrastinate_workers w"
                " WHERE w.id = j.worker_id AND (%s::float IS NULL"
                " OR w.last_heartbeat > now() - make_interval(secs => %s)))"
                " ORDER BY j.id FOR UPDATE OF j SKIP LOCKED",
                (dead_after_s, dead_after_s),
            ).fetchall()
            for job_id, before in stalled:
                query = "UPDATE farm_jobs SET deaths = deaths + 1, note = 'its host died' WHERE job_id = %s"
                connection.execute(query, (job_id,))
                if before + 1 < DEATHS_MAX:
                    connection.execute("SELECT procrastinate_retry_job_v2(%s, now(), NULL, NULL, NULL)", (job_id,))
                else:
                    end_as_failed(connection, job_id, f"its host died {before + 1} times")
        return [job_id for job_id, _ in stalled]
