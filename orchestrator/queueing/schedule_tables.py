"""The tables of schedules: what is submitted when, what it needs, and what became of each time that it was due."""

from __future__ import annotations

from typing import Final

SCHEDULES: Final = """
CREATE TABLE farm_schedules (
    name text PRIMARY KEY,
    cron text NOT NULL,
    timezone text NOT NULL,
    plan text NOT NULL,
    plan_name text NOT NULL,
    parcels text NOT NULL,
    priority integer NOT NULL,
    grace_s double precision NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    next_at timestamptz NOT NULL
);
CREATE TABLE farm_schedule_files (
    schedule text NOT NULL REFERENCES farm_schedules (name) ON DELETE CASCADE,
    sha256 text NOT NULL REFERENCES farm_files (sha256),
    PRIMARY KEY (schedule, sha256)
);
CREATE TABLE farm_ticks (
    schedule text NOT NULL,
    tick_at timestamptz NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('submitted', 'missed', 'failed')),
    submission text NOT NULL DEFAULT '',
    host text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT '',
    told_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (schedule, tick_at)
);
"""
